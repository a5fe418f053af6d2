// The report of what a compile made of a model: as JSON, and as text and as a page from that JSON.
#pragma once
#include "inputs.h"

namespace tessera::command {

// Bytes are given as expressions and, where the sizes say it, as numbers.
[[nodiscard]] Json explain_json(const Session& session, const SessionVariant& variant, const std::string& path,
                                const Sizes& sizes);
[[nodiscard]] std::string explain_text(const Json& report, bool summary);
// One HTML file that needs no other: tables that can be sorted, a bar for what each step moves.
[[nodiscard]] std::string explain_html(const Json& report);

} // namespace tessera::command
