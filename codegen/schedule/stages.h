// Stages: in which loop over the row each value of a reducing nest is computed, and which values are kept between
// loops.
//
// Round s of the row loops can use the reductions of rounds before it. A value of an earlier round that a later one
// needs is either computed again from memory (a load and some arithmetic) or kept in scratch, program-private memory of
// one row. Kept are values that are dear: more than one load, a gather, or elementary functions. Softmax: round 0 folds
// max(x); round 1 computes e = exp(x - m), keeps it and folds its sum; round 2 reads e and multiplies. Layer norm:
// round 0 keeps x + r and folds it; round 1 folds the squared distance, round 2 stores; the distance itself is one
// subtraction from scratch.
#pragma once
#include "codegen/schedule/domain.h"

namespace tessera {

struct Stage {
  std::vector<ScalarId> reduces; // folded in this round
  std::vector<size_t> stores;    // positions in nest.stores, of values that vary along the row
  std::vector<ScalarId> keeps;   // values computed here that go to scratch
};
struct Stages {
  std::vector<Stage> stages;
  std::vector<size_t> row_stores; // positions of stores once per outer point: after the last round
  std::vector<char> kept;         // by ScalarId
  // Whether something else than results of the row needs what is folded: a later stage, or elements of the row.
  [[nodiscard]] bool folds_are_read() const;
};
[[nodiscard]] Stages plan_stages(const LoopNest& nest, const Domain& domain);
// The values along the row that a stage computes itself, users first: its own, and again those of earlier stages that
// are not kept.
[[nodiscard]] std::vector<ScalarId> computed_in(const LoopNest& nest, const Domain& domain, const Stages& stages,
                                                size_t stage);

} // namespace tessera
