// What the users of each value of a nest ask of it, found by one walk from the stores to the loads. Both lowerings, for
// hosts and for GPUs, emit checks, masks and divisions by it.
#pragma once
#include "codegen/schedule/domain.h"

namespace tessera {

struct Needs {
  std::vector<char> outside;                     // by ScalarId: needed also where the row is empty
  std::vector<char> always;                      // needed where no predicate holds
  std::vector<char> steep;                       // reaches a rounding or comparison, where the last bit decides
  std::vector<std::vector<ScalarId>> predicates; // any of these makes it needed
};
[[nodiscard]] Needs find_needs(const LoopNest& nest, const Domain& domain);
// Whether all that decides if `id` is needed is there where `axes` are bound and `known` rounds of reductions are over.
// Before that it must not be computed ahead: a check would report an index that nobody uses.
[[nodiscard]] bool need_is_known(const Domain& domain, const Needs& needs, ScalarId id, uint64_t axes, int known);

// What `id` is where all loads that `reads_zero` admits are 0, as masked ones are; nothing where that is not known from
// constants alone. A select that would yield the same there is of no use.
[[nodiscard]] std::optional<ScalarValue> value_of_zeros(const LoopNest& nest, ScalarId id,
                                                        const std::function<bool(ScalarId)>& reads_zero);
// Equal as bits: 0 and -0 are not.
[[nodiscard]] bool same_value(DType dtype, const ScalarValue& a, const ScalarValue& b);

// x / s with s a result of the row's reductions and x varying along the row, in f32: softmax, norms. One reciprocal per
// row may replace a division per element; docs/schedules.md says what that costs in accuracy.
[[nodiscard]] bool divides_by_row_scalar(const LoopNest& nest, const Domain& domain, const Needs& needs, ScalarId id);
// Whether `id` is computed from `on`.
[[nodiscard]] bool depends_on(const LoopNest& nest, ScalarId id, ScalarId on);
// What a failed CheckBounds tells: "index out of range [0, 30) of 'table' in Gather_3".
[[nodiscard]] std::string bounds_text(const Graph& graph, const LoopNest& nest, ScalarId check);

} // namespace tessera
