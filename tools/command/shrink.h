// The smallest set of items of which something still holds.
#pragma once
#include <cstddef>
#include <functional>
#include <set>

namespace tessera::command {

// Delta debugging (A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002): removes
// halves, quarters ... down to single items as long as `holds` is true of what is left. The result is such that no
// single item can be removed, unless `expired` ended it. Items are taken in their order; `holds` is true of `items`.
[[nodiscard]] std::set<size_t> smallest(const std::set<size_t>& items,
                                        const std::function<bool(const std::set<size_t>&)>& holds,
                                        const std::function<bool()>& expired);

} // namespace tessera::command
