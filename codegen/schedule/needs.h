// Requirements of the users of each value of a nest, found by one pass from stores to loads. The lowerings for hosts
// and GPUs emit checks, masks and divisions accordingly.
#pragma once
#include "codegen/schedule/domain.h"

namespace tessera {

struct Needs {
  std::vector<char> outside;                     // by ScalarId: needed even if the row is empty
  std::vector<char> always;                      // needed under no predicate
  std::vector<char> steep;                       // reaches a rounding or comparison, where the last bit matters
  std::vector<std::vector<ScalarId>> predicates; // needed if any of these is true
};
[[nodiscard]] Needs find_needs(const LoopNest& nest, const Domain& domain);
// True if the conditions that decide whether `id` is needed can be computed when `axes` are bound and `known` stages of
// reductions are complete. Otherwise it must not be hoisted: a check could report an index that nothing uses.
[[nodiscard]] bool need_is_known(const Domain& domain, const Needs& needs, ScalarId id, uint64_t axes, int known);

// Value of `id` if all loads that `reads_zero` selects are 0, as masked ones are; nothing if constants do not determine
// it. A select with the same value there is redundant.
[[nodiscard]] std::optional<ScalarValue> value_of_zeros(const LoopNest& nest, ScalarId id,
                                                        const std::function<bool(ScalarId)>& reads_zero);
// Bitwise equality: 0 and -0 differ.
[[nodiscard]] bool same_value(DType dtype, const ScalarValue& a, const ScalarValue& b);

// x / s with s a result of the row's reductions and x varying along the row, in f32, as in softmax and norms. One
// reciprocal per row may replace a division per element; docs/schedules.md explains the accuracy.
[[nodiscard]] bool divides_by_row_scalar(const LoopNest& nest, const Domain& domain, const Needs& needs, ScalarId id);
// True if `id` depends on `on`.
[[nodiscard]] bool depends_on(const LoopNest& nest, ScalarId id, ScalarId on);

} // namespace tessera
