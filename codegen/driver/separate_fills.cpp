#include "codegen/driver/separate_fills.h"
#include "graph/ops/questions.h"
#include "graph/ops/scatter.h"
#include <algorithm>

namespace tessera {
namespace {

bool is_one_element(const Graph& graph, ValueId v) {
  const SymShape& shape = graph.type(v).shape;
  return std::all_of(shape.begin(), shape.end(), [](const SymExpr& e) { return e.is_const(1); });
}

// Nodes that make `v` of a constant of one element, the last one first; empty if it is none.
std::vector<NodeId> fill_nodes(const Graph& graph, ValueId v) {
  std::vector<NodeId> nodes;
  while (!graph.constant(v) || !is_one_element(graph, v)) {
    const NodeId id = graph.value(v).producer;
    if (!id.valid()) return {};
    const Node& node = graph.node(id);
    const bool view = node.op->indexing() && node.op->indexing()->view;
    if (!view && !ops::is(node, ScalarOp::Cast)) return {};
    nodes.push_back(id);
    v = node.operands[0];
  }
  return nodes;
}

} // namespace

Result<bool> separate_fills(Graph& graph) {
  auto users = graph.users();
  bool changed = false;
  for (NodeId id : graph.order()) {
    const ValueId begin = ops::begins_as(graph.node(id));
    if (!begin.valid()) continue;
    size_t readers = users[static_cast<size_t>(begin.index)].size();
    readers += static_cast<size_t>(std::count_if(graph.outputs().begin(), graph.outputs().end(),
                                                 [&](const Graph::Output& o) { return o.value == begin; }));
    const std::vector<NodeId> nodes = readers > 1 ? fill_nodes(graph, begin) : std::vector<NodeId>();
    if (nodes.empty()) continue;
    ValueId own = graph.node(nodes.back()).operands[0];
    for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
      const Node node = graph.node(*it);
      std::vector<ValueId> operands = node.operands;
      operands[0] = own;
      TESSERA_ASSIGN(NodeId copy,
                     graph.add_node(*node.op, std::move(operands), node.attributes, node.location, {""}, node.opset));
      own = graph.node(copy).results[0];
    }
    std::vector<ValueId>& operands = graph.node(id).operands;
    *std::find(operands.begin(), operands.end(), begin) = own;
    std::vector<NodeId>& left = users[static_cast<size_t>(begin.index)];
    left.erase(std::find(left.begin(), left.end(), id));
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

} // namespace tessera
