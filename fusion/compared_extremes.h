// Values that are compared with a maximum or minimum of themselves: the gradient of amax, masks of the largest elements.
#pragma once
#include "fusion/expand.h"

namespace tessera::fusion {

// By value. Such a value must be computed once: two kernels may round it in different places, and then no element equals
// the extreme. `order`: the nodes to look at, operands first.
[[nodiscard]] std::vector<bool> compared_with_their_extremes(const Graph& graph, std::span<const NodeId> order,
                                                             NodeBodies& bodies);

} // namespace tessera::fusion
