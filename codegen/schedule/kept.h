// What of a loop's tiles later rounds need, and may find on the multiprocessor rather than read again.
//
// The idea. The first round computes values from memory; later rounds need some of them. Cutting between the two, what
// crosses the cut is enough to keep: either the values where later rounds begin (z = x + r of a norm), or the loads
// they come from (x, where z is the f32 of a bf16). Whichever has fewer bytes an element.
#pragma once
#include "codegen/schedule/online.h"

namespace tessera {

struct KeptValue {
  ScalarId id = -1;
  DType dtype = DType::F32; // it is kept in: of a load, the buffer's
};
// Values that the first round with anything to do computes and later ones need; of those, only what depends on all the
// axes of each set of `sides` (bits): others are few elements. Empty with a single round.
[[nodiscard]] std::vector<KeptValue> find_kept(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                               const Stages& stages, const OnlineSums& online,
                                               const std::vector<uint64_t>& sides);
[[nodiscard]] int kept_bytes(const std::vector<KeptValue>& values); // of an element

} // namespace tessera
