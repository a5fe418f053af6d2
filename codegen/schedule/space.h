// All schedules of a nest for blocks of threads at given sizes: placement of axes, tile, traversal, residency and
// cooperation of blocks. Nothing is chosen here; legal.h says which of them are right, cost.h how long they take.
#pragma once
#include "codegen/schedule/cost.h"

namespace tessera {

// Calls `visit` for each schedule; `blocks_per_row`: that share a row, or columns, at these sizes. `online`: sums may be
// folded together with the reductions that they depend on.
using VisitSchedule = std::function<void(const Schedule& schedule, int64_t blocks_per_row)>;
void for_each_schedule(const BlockFacts& facts, const SizedFacts& sized, const CallSizes& sizes, bool online,
                       const VisitSchedule& visit);

} // namespace tessera
