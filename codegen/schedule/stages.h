// Stages: the loops over the row of a nest with reductions, the values that each computes, and those that are cached
// between loops.
//
// Stage s can use the reductions of earlier stages. A value of an earlier stage that a later one needs is either
// recomputed from memory (a load and some arithmetic) or cached in scratch, program-private memory of one row.
// Expensive values are cached: more than one load, a gather, or elementary functions. Softmax: stage 0 computes max(x);
// stage 1 computes e = exp(x - m), caches it and computes its sum; stage 2 reads e and multiplies. Layer norm: stage 0
// caches x + r and computes its sum; stage 1 sums the squared distance, stage 2 stores; the distance itself is one
// subtraction from scratch.
#pragma once
#include "codegen/schedule/domain.h"

namespace tessera {

struct Stage {
  std::vector<ScalarId> reduces; // reductions of this stage
  std::vector<size_t> stores;    // indices in nest.stores, of values that vary along the row
  std::vector<ScalarId> caches;  // values computed here and cached in scratch
};
struct Stages {
  std::vector<Stage> stages;
  std::vector<size_t> row_stores; // indices of stores once per outer point, after the last stage
  std::vector<char> cached;       // by ScalarId
  // True if a later stage or elements of the row need the reductions, not only results of the row.
  [[nodiscard]] bool folds_are_read() const;
};
[[nodiscard]] Stages plan_stages(const LoopNest& nest, const Domain& domain);
// The values along the row that a stage computes itself, users first: its own, and again those of earlier stages that
// are not kept.
[[nodiscard]] std::vector<ScalarId> computed_in(const LoopNest& nest, const Domain& domain, const Stages& stages,
                                                size_t stage);

} // namespace tessera
