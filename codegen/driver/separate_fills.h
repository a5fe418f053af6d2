// Operators that change their first operand in place (ops::begins_as) get a fill of their own where the operand is one.
//
// A result that is changed in place takes over its operand's memory if nothing else reads the operand (build.cpp): the
// fill then writes the result, an output too. Of equal fills, common subexpressions leave one, which several operators
// read; each but the last would begin with a copy of it, which moves twice the bytes of a fill:
//
//   z = expand(0)                            z1 = expand(0)   z2 = expand(0)
//   a = scatter(z, ..)  b = scatter(z, ..)   a = scatter(z1, ..)  b = scatter(z2, ..)
#pragma once
#include "graph/ir/graph.h"

namespace tessera {

// Returns whether the graph changed. Errors: those of inference.
[[nodiscard]] Result<bool> separate_fills(Graph& graph);

} // namespace tessera
