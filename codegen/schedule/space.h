// All schedules of a nest for blocks of threads at given sizes: placement of axes, tile, traversal, residency and
// cooperation of blocks. Nothing is chosen here; legal.h says which of them are right, cost.h how long they take.
#pragma once
#include "codegen/schedule/cost.h"

namespace tessera {

// Calls `visit` for each schedule, without conditions, and but for "online" without a config; `members`: blocks that
// share a row, or columns, at these sizes. `online`: sums may be folded together with the reductions that they depend
// on.
using VisitSchedule = std::function<void(const BlockPlan& plan, int64_t members)>;
void for_each_schedule(const BlockFacts& facts, const SizedFacts& sized, const CallSizes& sizes, bool online,
                       const VisitSchedule& visit);

} // namespace tessera
