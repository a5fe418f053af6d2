// The form of the primitives `scatter` and `scatter_runs`.
#pragma once
#include "graph/ops/record.h"

namespace tessera::ops {

// Their data as [b, t, s]: the attribute `view`, or the data's own shape. The updates are [b, u, s] in the same way, in
// any shape of as many elements.
[[nodiscard]] SymShape scatter_view(const Graph& graph, const Node& node);

// The operand whose elements a node's first result has wherever the node writes none: the data of a scatter. A kernel
// changes the result in place, which begins with the operand's memory or with a copy of it. Invalid: there is none.
[[nodiscard]] ValueId begins_as(const Node& node);

} // namespace tessera::ops
