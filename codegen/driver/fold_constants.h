// Computes values that depend on no input at compile time.
//
// The pass `fold` computes small nodes by their reference, early, so that other passes see numbers. This pass decides
// about the others once the steps of the executable are known, because a view, or an index that a kernel computes,
// needs no step and no memory. It computes
//
//   - results of steps that read only constants, of every kind (kernels, library calls, operators by reference on the
//     host): such a step computes the same in every call
//   - values inside a step that reads inputs, if they are not larger than the largest constant from which they are
//     computed, and are more than views: a mask, a cast to a smaller type; but not int8 weights as f32, because int8
//     takes fewer bytes to read
//
// by compiling these nodes for this host and running them once: for the host the same code as the steps; for a GPU, exp
// and similar functions round as on the host. Operators with a side effect (random numbers), with a subgraph, or with
// weights without data are not computed. A value whose computation fails (an index out of range) is not folded, so that
// the run reports the error.
#pragma once
#include "codegen/driver/compile.h"

namespace tessera {

// Adds to `folded` which values were computed, which were not, and why. Returns whether the graph has changed; then its
// ids have changed, too, and it must be planned again.
[[nodiscard]] Result<bool> fold_constants(Graph& graph, const FusionPlan& plan, const CompileOptions& options,
                                          FoldedConstants& folded);

} // namespace tessera
