// Runs a graph by the reference implementations in the operators' records: slow, plain, the definition of "right". Used
// by constant folding, by tests, and for operators that no device supports (host steps).
#pragma once
#include "graph/ir/graph.h"
#include <map>

namespace tessera {

using SymValues = std::unordered_map<uint64_t, int64_t>; // symbol id -> value

// One node. `operands` has one tensor per operand (undefined where left out); `symbols` binds what SymShape attributes
// need. Composites without a reference of their own are evaluated through their decomposition.
[[nodiscard]] Result<std::vector<Tensor>> evaluate_node(const Graph& graph, const Node& node,
                                                        std::vector<Tensor> operands, const SymValues& symbols);
// Binds the sizes that only running `node` defines to those of its `results`. Returns false and changes nothing where a
// size is beyond what guards allow: they report it when the model runs.
bool bind_read_sizes(Graph& graph, const Node& node, const std::vector<Tensor>& results);
// A whole graph: inputs by name, outputs in order. Symbols are bound from the inputs' dims. Checks inputs' dtypes and
// ranks, and that each result has the dtype and the dims that its type promises under these symbols (error Internal
// when not).
[[nodiscard]] Result<std::vector<Tensor>> evaluate_graph(const Graph& graph,
                                                         const std::map<std::string, Tensor>& inputs);
// The same for inputs in order, where `known` symbols have values from around the graph.
[[nodiscard]] Result<std::vector<Tensor>> evaluate_body(const Graph& graph, const std::vector<Tensor>& inputs,
                                                        const SymValues& known);
// Binds the symbols of a graph's input shapes from concrete dims; error BadInput naming input and dimension on
// contradiction, GuardFailed when a required guard does not hold. Symbols that the environment has replaced by others
// are bound as well.
[[nodiscard]] Result<SymValues> bind_symbols(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                                             const SymValues& known = {});

} // namespace tessera
