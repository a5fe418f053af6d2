// Keys of loop nests, by which measured schedules are found.
#pragma once
#include "base/hash.h"
#include "codegen/schedule/domain.h"

namespace tessera {

// Hash of a nest's operations and memory layout: equal for nests that differ in names only. Constant sizes are
// included, names of symbols are not. The same in every process.
[[nodiscard]] Hash128 nest_key(const Graph& graph, const LoopNest& nest, const Domain& domain);

// The same without sizes: nests have one signature if they have the same operations, dtypes and axes, and accesses with
// steps of 0, 1 or 2 elements, or any other step, along each axis. Constants' values are excluded.
[[nodiscard]] Hash128 nest_signature(const Graph& graph, const LoopNest& nest, const Domain& domain);

} // namespace tessera
