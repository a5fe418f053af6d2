// Bodies and rewrites of records, applied to a node.
#pragma once
#include "graph/ir/graph.h"
#include "graph/ir/operator.h"
#include "graph/scalar/scalar.h"

namespace tessera {

// The dtype a pointwise result is stored in: bool when the body yields bool; the storage dtype of the first operand
// that is not bool when the body yields that operand's compute dtype; else the body's own.
[[nodiscard]] DType pointwise_dtype(DType body, std::span<const DType> operands);
// The body of a pointwise node over loads of its operands; load i has the index `at(i)` and its operand's storage
// dtype.
[[nodiscard]] Result<ScalarId> build_pointwise(const Graph& graph, const Node& node, ScalarDag& dag,
                                               const std::function<std::vector<ScalarId>(int operand)>& at);
// A graph of this node's operands alone, sharing the environment: constants stay constants, other operands become
// inputs with their contents. `node` gets the operands of that graph. Inference and evaluation of composites run
// decompositions in one.
[[nodiscard]] Graph scratch_graph(const Graph& graph, const Node& node, Node& copy);

} // namespace tessera
