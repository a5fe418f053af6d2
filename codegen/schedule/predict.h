// The predicted time of a kernel that is there already, at sizes of a call: for reports, which price what was planned at
// other sizes than those at which schedules were compared.
#pragma once
#include "codegen/schedule/tuned.h"

namespace tessera {

struct KernelPrediction {
  PredictedTime time;
  double blocks = 0;    // programs; of a GPU, blocks
  double resident = 0;  // of a GPU: blocks on a multiprocessor at a time
  double registers = 0; // of a GPU: that a thread needs not to spill, expected
  double code = 0;      // of a GPU: counted instructions of its code (kInstructionBytes)
};
// `sizes`: of every symbol of the nest. Of a host, `device.cores` cores work. Errors: a nest without domain, an
// expression that cannot be evaluated, a schedule that is not legal for the nest.
[[nodiscard]] Result<KernelPrediction> predict(const Graph& graph, const LoopNest& nest, const Target& device,
                                               const Schedule& schedule, const CallSizes& sizes);

// The predicted time of the kernel that a nest would get on a GPU, at the sizes that are known or that have hints. Errors
// CodegenError: no schedule is legal, or a size is neither known nor has a hint.
[[nodiscard]] Result<PredictedTime> predict_chosen(const Graph& graph, const LoopNest& nest, const Target& device);

} // namespace tessera
