// The schedules of a nest that are worth measuring at given sizes.
#pragma once
#include "codegen/schedule/tuned.h"

namespace tessera {

// The first one is what the rules choose at these sizes, the others vary its numbers and its form; each has
// its estimate in `estimate_us` (a GPU's; 0 on a host), and the extents that it is good for (bucket_of). Of a
// GPU's the ones that the estimate puts first are taken, at most `most` in all. Empty where there is nothing to choose
// or a size is not given. Deterministic.
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
