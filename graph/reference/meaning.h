// An operator's meaning (its scalar body, indexing or reduction) run over concrete tensors, one element at a time.
// Tests hold it against the record's plain reference; nothing else needs it.
#pragma once
#include "graph/reference/evaluator.h"

namespace tessera {

// Results of a pointwise, indexing or reduction node. `operands` has one tensor per operand (undefined where left out);
// `symbols` binds the sizes in the node's result types and attributes. Values are rounded to the storage dtype once, at
// the end. Errors: UnsupportedFeature when the meaning is of another kind, UnsupportedType for strings and complex
// numbers, BadInput when a body indexes outside of an operand.
[[nodiscard]] Result<std::vector<Tensor>>
evaluate_meaning(const Graph& graph, const Node& node, const std::vector<Tensor>& operands, const SymValues& symbols);

} // namespace tessera
