#include "fusion/compared_extremes.h"
#include "fusion/decide.h"
#include "graph/ops/questions.h"
#include <algorithm>

namespace tessera::fusion {
namespace {

bool moves_as_it_is(const Graph& graph, ValueId v) {
  if (is_view(graph, v)) return true;
  const Node* node = graph.producer(v);
  if (!node || !ops::is(*node, ScalarOp::Cast)) return false;
  const DType from = graph.type(node->operands[0]).dtype, to = graph.type(v).dtype;
  return is_float(from) && is_float(to) && info(from).bits <= info(to).bits;
}

// The value that `v` shows, through views and widening casts.
ValueId shown(const Graph& graph, ValueId v) {
  while (moves_as_it_is(graph, v)) v = graph.producer(v)->operands[0];
  return v;
}

bool compares(const NodeBody& body) {
  for (ScalarId id = 0; id < body.dag.size(); ++id)
    if (info(body.dag[id].op).jumps) return true;
  return false;
}

} // namespace

std::vector<bool> compared_with_their_extremes(const Graph& graph, std::span<const NodeId> order, NodeBodies& bodies) {
  std::vector<bool> out(static_cast<size_t>(graph.value_count()), false);
  std::unordered_map<ValueId, ValueId> extreme_of; // a result of reduce_max or reduce_min -> what it is an extreme of
  for (NodeId id : order) {
    const Node& node = graph.node(id);
    if (const Reduction* r = node.op->reduction()) {
      const ValueId of = shown(graph, node.operands[0]);
      if ((r->kind == ReduceKind::Max || r->kind == ReduceKind::Min) && is_float(graph.type(of).dtype))
        extreme_of.emplace(node.results[0], of);
      continue;
    }
    if (extreme_of.empty() || node.operands.size() < 2) continue;
    for (ValueId a : node.operands) {
      if (!a.valid()) continue;
      const auto extreme = extreme_of.find(shown(graph, a));
      if (extreme == extreme_of.end()) continue;
      const bool both = std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId b) {
        return b.valid() && b != a && shown(graph, b) == extreme->second;
      });
      if (!both) continue;
      auto body = bodies.get(node.results[0]);
      if (body.ok() && compares(**body)) out[static_cast<size_t>(extreme->second.index)] = true;
    }
  }
  return out;
}

} // namespace tessera::fusion
