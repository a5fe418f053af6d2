// Runs a graph by the reference implementations in the operators' records: slow, plain, the definition of "right". Used by
// constant folding, by tests, and for operators that no device supports (host steps).
#pragma once
#include "graph/ir/graph.h"
#include <map>

namespace tessera {

// One node. `operands` has one tensor per operand (undefined where left out); `symbols` binds what SymShape attributes need.
// Composites without a reference of their own are evaluated through their decomposition.
[[nodiscard]] Result<std::vector<Tensor>> evaluate_node(const Graph& graph, const Node& node, std::vector<Tensor> operands,
                                                        const std::unordered_map<uint64_t, int64_t>& symbols);
// A whole graph: inputs by name, outputs in order. Symbols are bound from the inputs' dims. Checks inputs' dtypes and ranks.
[[nodiscard]] Result<std::vector<Tensor>> evaluate_graph(const Graph& graph, const std::map<std::string, Tensor>& inputs);
// Binds the symbols of a graph's input shapes from concrete dims; error BadInput naming input and dimension on contradiction.
[[nodiscard]] Result<std::unordered_map<uint64_t, int64_t>> bind_symbols(const Graph& graph, const std::map<std::string, Tensor>& inputs);

} // namespace tessera
