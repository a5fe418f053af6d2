// The form of the primitives `scatter` and `scatter_runs`.
#pragma once
#include "graph/ops/op.h"

namespace tessera::ops {

// Their data as [b, t, s]: the attribute `view`, or the data's own shape. The updates are [b, u, s] in the same way, in
// any shape of as many elements.
[[nodiscard]] SymShape scatter_view(const Graph& graph, const Node& node);

} // namespace tessera::ops
