// The schedules of a nest for a host, and which of them are legal. Private to the folder.
#pragma once
#include "codegen/schedule/legal.h"
#include "codegen/schedule/space.h"

namespace tessera {

// space.h calls it for a host.
void for_each_host_schedule(const BlockFacts& facts, const SizedFacts& sized, const VisitSchedule& visit);
// legal.h calls it for a schedule of a host. A host has one kernel for all sizes: `extents` are all that an axis may have.
[[nodiscard]] Legal legal_host(const BlockFacts& facts, const Schedule& schedule, std::span<const ExtentRange> extents);

} // namespace tessera
