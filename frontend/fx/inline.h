// Regions of a program that only say how its nodes are to be run: torch.no_grad() and the like around a part of a
// module are calls of higher-order operators with the part as a graph of its own. Their nodes take the call's place:
//
//   y = higher_order.wrap_with_set_grad_enabled(False, {mul = aten.mul(x, 2); return mul}, x)
//
//   mul = aten.mul(x, 2)
//   y = aten.alias(mul)
//
// Values of the region keep their names where these are free. Regions with a meaning of their own (autocast, cond)
// stay, and are errors of the import.
#pragma once
#include "frontend/fx/program.h"

namespace tessera::fx {

// Error MalformedModel for a region that is called with another number of values than it takes or yields.
[[nodiscard]] Status inline_regions(Program& program, const std::string& file);

// Advice on a node that is a region with a meaning of its own; empty for any other node.
[[nodiscard]] std::string advice_on_region(const FxNode& node);

} // namespace tessera::fx
