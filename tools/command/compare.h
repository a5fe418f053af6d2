// Two reports compared: what fused differently and why, and what became slower or faster.
#pragma once
#include "command.h"

namespace tessera::command {

// Operators are matched by name, those that are left by their order and type, as two exporters name the same model. The
// plans are the same where operators are divided into steps alike, with the same verdicts at their edges, the same
// launches, bytes and predicted times; measured times and operators that no step computes decide nothing. Throws
// Json::exception where a part of a report is missing.
[[nodiscard]] Json compare_reports(const Json& a, const Json& b);
[[nodiscard]] std::string comparison_text(const Json& diff);

} // namespace tessera::command
