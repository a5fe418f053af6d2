// Values of a loop's tiles that later stages need, and that can be cached on the multiprocessor instead of read again.
//
// The first stage computes values from memory; later stages need some of them. It suffices to cache a cut between the
// two: either the values with which later stages begin (z = x + r of a norm), or the loads from which these are
// computed (x, if z is the f32 of a bf16), whichever has fewer bytes per element.
#pragma once
#include "codegen/schedule/online.h"

namespace tessera {

struct CachedValue {
  ScalarId id = -1;
  DType dtype = DType::F32; // dtype of the cached value: of a load, the buffer's
};
// Values that the first non-empty stage computes and later ones need; only those that depend on all axes of each set of
// `sides` (bit masks), because others are few elements. Empty for a single stage.
[[nodiscard]] std::vector<CachedValue> find_cached_values(const Graph& graph, const LoopNest& nest,
                                                          const Domain& domain, const Stages& stages,
                                                          const OnlineSums& online, const std::vector<uint64_t>& sides);
[[nodiscard]] int cached_bytes(const std::vector<CachedValue>& values); // bytes per element

} // namespace tessera
