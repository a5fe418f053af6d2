// Variants that are compiled in the background for combinations of sizes that recur: the policy Adaptive.
//
// Each call that a variant for every size answers loses what the cost model says that a variant for its sizes gains.
// When the calls of one combination have lost as much as a compile takes, it is compiled: so no combination costs more
// than twice what it had cost with all knowledge beforehand (the ski-rental rule). Executors take it with their next
// call.
#pragma once
#include "api/session/variant_pool.h"

namespace tessera {

[[nodiscard]] std::shared_ptr<BackgroundWork> compile_in_background(std::shared_ptr<VariantPool> pool);
// One of several; null for none.
[[nodiscard]] std::shared_ptr<BackgroundWork> together(std::vector<std::shared_ptr<BackgroundWork>> all);

} // namespace tessera
