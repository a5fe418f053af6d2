// The choice for a host over facts that are already there. Private to the folder.
#pragma once
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/tuned.h"

namespace tessera {

[[nodiscard]] HostChoice choose_host(const BlockFacts& facts, const TunedSchedules* tuned = nullptr,
                                     std::span<const Schedule> without = {});

} // namespace tessera
