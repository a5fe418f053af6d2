// The requirements of a user for a compile (CompileOptions::no_fuse, break_at, plan): names checked against the model,
// given to the planner, and reported where they do not hold. docs/steering.md.
#pragma once
#include "codegen/compilation/routes.h"
#include "codegen/driver/compile.h"

namespace tessera {

// Checks the operators that no_fuse and break_at name against an imported model, bodies of control flow included. A name
// that several operators have becomes the name of their first output ("Add#2" is the second one, as reports have it).
// Error Usage: there is no such operator, with the one that may have been meant; the same one twice.
[[nodiscard]] Status check_operators(const Graph& model, CompileOptions& options);

// The route of a group: "cuBLASLt", "generated code", "the host".
[[nodiscard]] std::string route_of(const Group& group, const Graph& graph, const DeviceRoutes* routes);
// Puts into report.plan_warnings what does not hold. `operators`: of the imported graph. Error Usage where options or file
// are strict and an entry of the file does not fit.
[[nodiscard]] Status report_unmet(const Graph& graph, const CompileOptions& options, CompileReport& report);

} // namespace tessera
