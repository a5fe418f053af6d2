// The order of a plan's groups, so that values in memory live shortly.
//
// A group runs as late as what reads it allows where its results are larger than what then lives longer, and as early as
// what it reads allows where it ends the life of more than it makes. A backward pass computes anew what the forward pass
// did not save: it does so when that is needed, and not for all layers at its beginning.
#pragma once
#include "fusion/plan.h"

namespace tessera::fusion {

// Changes the order of `plan.groups` alone; groups that run on the host or are control flow stay where they are, and
// none crosses them. By estimated sizes (cost.h). Quadratic in the number of groups at worst. True: it changed.
bool shorten_lifetimes(const Graph& graph, FusionPlan& plan);

} // namespace tessera::fusion
