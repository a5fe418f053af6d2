// Choosing elements by flags: how many there are is read when the model runs.
#pragma once
#include "graph/ops/parts.h"

namespace tessera::ops {

// A new symbol for a size of at most `most`.
[[nodiscard]] SymExpr fresh(InferContext& c, std::string_view name, const SymExpr& most);
// x, with numbers in the place of codes of less than 8 bits, or less than 16 of a float, in the same order.
[[nodiscard]] ValueId sortable(B& b, ValueId x);
// The number of flags that are set, read: what `symbol`, a size of a result, stands for; a new symbol without one.
[[nodiscard]] SymExpr read_count(B& b, ValueId flags, const std::optional<SymExpr>& symbol);
// Dimension `d` of the first of these results that is used.
[[nodiscard]] std::optional<SymExpr> size_of_result(B& b, std::initializer_list<size_t> results, size_t d);
// Flags [n] as places among those that are set, from 1 on.
[[nodiscard]] ValueId places(B& b, ValueId flags);
// [size] with values[i] at targets[i]; targets differ, negative ones are left out.
[[nodiscard]] ValueId placed(B& b, ValueId targets, ValueId values, const SymExpr& size);
// The indices at which flags [n] are set, in ascending order: i64[count].
[[nodiscard]] ValueId positions(B& b, ValueId flags, const SymExpr& count);

} // namespace tessera::ops
