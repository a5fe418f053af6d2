// Failures of a compile that something else takes the place of (codegen/driver/detours.h).
#pragma once
#include "codegen/compilation/compiled.h"

namespace tessera {

// Counts and logs a failure, saves `text`, and adds it to the report. `where`: "kernel k3_softmax".
void contain(std::vector<ContainedFailure>& report, const CompileOptions& options, std::string where,
             const Diagnostic& error, std::string instead, const std::string& text);
// Whether another way may be taken after this error: not where the caller gave up or memory ended, nor for wrong use.
[[nodiscard]] bool may_detour(const Diagnostic& error);

} // namespace tessera
