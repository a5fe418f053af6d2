// The schedules of a contraction for a GPU. Private to the folder; space.h calls it.
#pragma once
#include "codegen/schedule/space.h"

namespace tessera {

// Tiles of all sizes that tensor cores multiply, stages that fit shared memory, one tile a program or tiles in turn. The
// nest must be a contraction.
void for_each_contraction_schedule(const BlockFacts& facts, const SizedFacts& sized, const VisitSchedule& visit);

} // namespace tessera
