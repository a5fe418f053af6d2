// Names of loop nests under which measured schedules are found.
#pragma once
#include "codegen/schedule/domain.h"
#include "graph/support/hash.h"

namespace tessera {

// What a nest computes and how it lies in memory, as a hash: equal for nests that differ in names alone. Sizes that are
// numbers count, symbols do not by their names. The same in every process.
[[nodiscard]] Hash128 nest_key(const Graph& graph, const LoopNest& nest, const Domain& domain);

// The same without sizes: nests have one signature if they have the same operations, dtypes and axes, and accesses that
// move along each axis by 0, 1 or 2 elements, or by any other step. Values of constants do not count.
[[nodiscard]] Hash128 nest_signature(const Graph& graph, const LoopNest& nest, const Domain& domain);

} // namespace tessera
