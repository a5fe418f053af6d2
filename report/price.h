// Times of steps, predicted by the models that plan: codegen/schedule/predict.h for kernels,
// codegen/device/library_cost.h for library calls. Private to the folder.
#pragma once
#include "codegen/schedule/predict.h"
#include "report/context.h"

namespace tessera::report {

struct StepPrice {
  std::optional<PredictedTime> time;      // nothing: a size is known only at run time, or no model knows the step
  std::optional<KernelPrediction> kernel; // of a generated kernel with a nest
  double flops = 0;                       // additions, multiplications and other scalar operations
  double bytes = 0;
};
// The launch of `kernel` that the sizes choose among it and its alternatives: position in the order in which they are
// tried; the last one is the kernel without conditions. Nothing where a size is not known.
[[nodiscard]] std::optional<size_t> chosen_launch(const Context& context, const KernelLaunch& launch);
// The schedule of a kernel's launch `at`, as chosen_launch() counts.
[[nodiscard]] const Schedule& schedule_at(const KernelReport& kernel, size_t at);

// It runs on the device: a kernel, a library's call or a copy.
[[nodiscard]] bool launches(const StepOf& step);
[[nodiscard]] SymExpr flops_of(const Group& group);
[[nodiscard]] StepPrice price_of(const Context& context, const StepOf& step);
// A price as JSON: {"us", "alone_us", "bound", "terms_us", "roofline_share", "unfused_us"}.
[[nodiscard]] Json price_json(const Context& context, const StepOf& step, const StepPrice& price);

} // namespace tessera::report
