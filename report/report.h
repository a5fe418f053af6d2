// The report of a compile: what fused, what did not and why, what each step and each missed fusion costs. It is what
// `tessera explain` shows, of a model or of a compiled file, which holds it. docs/report.schema.json describes its JSON.
#pragma once
#include "codegen/driver/compile.h"
#include "frontend/model.h"

namespace tessera {

inline constexpr int kReportVersion = 1; // of the schema: greater when a field changes its meaning or goes

struct ReportOptions {
  std::string path;                     // of the model, for people
  std::string label;                    // of the variant, for people
  std::map<std::string, int64_t> sizes; // by name of a symbol, at which numbers hold; others: as planned
  // Prices what unknown sizes cost, which searches the schedules of each kernel again.
  bool symbols = false;
  bool nests = false; // the text of each kernel's loop nest
};
// JSON. A number that follows from the sizes of a call is {"expression": "4*b*s", "at_sizes": 1024}, over the symbols of
// the inputs; `at_sizes` is null where a size is known only at run time. Times are in microseconds, predicted by the
// models that plan. The graph of `compiled` is there.
[[nodiscard]] std::string report_text(const Compiled& compiled, const ModelInfo& model, const ReportOptions& options);
// The time that generated kernels lose at these sizes for having been compiled without them, in microseconds of a call:
// for each, the predicted time of its schedule less that of the best one for the sizes. The graph of `compiled` is there.
[[nodiscard]] double lost_to_unknown_sizes_us(const Compiled& compiled, const std::map<std::string, int64_t>& sizes);

} // namespace tessera
