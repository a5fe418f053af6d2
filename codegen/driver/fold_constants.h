// What does not depend on an input is computed when compiling.
//
// The pass `fold` computes small nodes by their reference, early, so that other passes see numbers. What it leaves is
// decided once it is known which steps there would be, since a view, or an index that a kernel computes as it goes,
// costs nothing and takes no memory. Computed are
//   - results of steps that read nothing but constants, whatever they are (kernels, library calls, operators that run
//   by
//     their reference on the host): such a step does at every call what it did at the first one
//   - what is written out in a step that reads inputs, too, where it is not larger than the largest constant that it is
//     made from, and is more than views: a mask, a cast to a smaller type; not int8 weights as f32, which are read in
//     fewer bytes as they are
// by compiling these nodes for this host and running them once: on the host the same code as the steps would be; for a
// GPU the host's rounding of exp and the like. Operators with a side effect (random numbers), with a subgraph, and what
// needs weights without data stay. A value that fails (an index out of range) stays, for the run to report.
#pragma once
#include "codegen/driver/compile.h"

namespace tessera {

// Adds to `folded` what was computed and what was left and why. Returns whether the graph has changed: its ids have
// then, too, and it is to be planned again.
[[nodiscard]] Result<bool> fold_constants(Graph& graph, const FusionPlan& plan, const CompileOptions& options,
                                          FoldedConstants& folded);

} // namespace tessera
