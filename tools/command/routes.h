// The other routes of a model's library calls, measured: what generated code would take in their place.
#pragma once
#include "reports.h"

namespace tessera::command {

// Compiles the model again without its library calls and measures it. Each step of the report that has routes gets
// "measured_us" for the taken one and for the generated one, and there "with": how many operators more those kernels
// compute. `notes`: the calls that no generated code computes. The report has its steps' measured times.
[[nodiscard]] Status measure_routes(const ModelOptions& model, const MeasureOptions& options, Session& session,
                                    Json& report, std::vector<std::string>& notes);

} // namespace tessera::command
