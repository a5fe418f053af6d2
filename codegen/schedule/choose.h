// Private to the folder: the choice over a domain that is already made.
#pragma once
#include "codegen/schedule/domain.h"
#include "codegen/schedule/schedule.h"

namespace tessera {

[[nodiscard]] Schedule choose_for(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                  const DeviceTraits& device);

} // namespace tessera
