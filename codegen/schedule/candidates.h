// The schedules of a nest that are worth measuring at given sizes.
#pragma once
#include "codegen/schedule/tuned.h"

namespace tessera {

// The first one is the default schedule at these sizes, the others are those of least predicted time, and on request a
// sample of the rest. Each has its predicted time in `estimate_us` and the extents that it is good for (bucket_of).
// Empty where there is nothing to choose or a size is not given. Deterministic.
struct Candidate {
  TunedSchedule tuned;
  double estimate_us = 0;
};
struct CandidateOptions {
  size_t most = 24;   // that the prediction puts first, the chosen one included
  size_t samples = 0; // of the others, drawn at random
  uint64_t seed = 1;
};
[[nodiscard]] Result<std::vector<Candidate>> candidates(const Graph& graph, const LoopNest& nest, const Target& device,
                                                        const CallSizes& sizes, const CandidateOptions& options);

} // namespace tessera
