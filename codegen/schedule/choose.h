// Private to the folder: the choice over a domain that is already made.
#pragma once
#include "codegen/schedule/domain.h"
#include "codegen/schedule/schedule.h"

namespace tessera {

[[nodiscard]] HostChoice choose_for(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                    const Target& device);
// Values that vary with some axis and are alive at one time, at most, when the nest is run in its order.
[[nodiscard]] int values_alive(const LoopNest& nest, const Domain& domain);

} // namespace tessera
