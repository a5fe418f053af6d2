// sink-transposes: op(transpose(a), transpose(b)) becomes transpose(op(a, b)) where that leaves fewer transposes:
// several operands have the same one, or the result runs into another one that it composes with (and often cancels).
//
// Transposes are views, and fusion folds views into indexing; so this is not about every transpose, only about those
// that stand between operators and would be seen by libraries or break one iteration space into two.
#include "graph/passes/passes.h"
#include <algorithm>

namespace tessera::passes {
namespace {
// Behind each value: does every path through pointwise operators end at a transpose? (An output is no transpose.)
std::vector<bool> runs_into_transpose(const Graph& graph, const std::vector<NodeId>& order) {
  const size_t count = static_cast<size_t>(graph.value_count());
  std::vector<bool> all(count, true), used(count, false);
  for (const Graph::Output& o : graph.outputs()) all[static_cast<size_t>(o.value.index)] = false;
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const Node& n = graph.node(*id);
    bool leads = n.op->name == "transpose";
    if (n.op->pointwise() && n.results.size() == 1) {
      const size_t r = static_cast<size_t>(n.results[0].index);
      leads = all[r] && used[r];
    }
    for (ValueId v : n.operands) {
      if (!v.valid()) continue;
      used[static_cast<size_t>(v.index)] = true;
      if (!leads) all[static_cast<size_t>(v.index)] = false;
    }
  }
  for (size_t i = 0; i < count; ++i) all[i] = all[i] && used[i];
  return all;
}

bool one_element(const TensorType& type) {
  return std::all_of(type.shape.begin(), type.shape.end(), [](const SymExpr& e) { return e.is_const(1); });
}
} // namespace

Result<bool> sink_transposes(Graph& graph, const PassOptions&) {
  const std::vector<bool> leads = runs_into_transpose(graph, graph.order());
  auto is_transpose = [&](ValueId v) { return is_op(graph.producer(v), "transpose"); };
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    const Node node = graph.node(id);
    if (!node.op->pointwise() || node.results.size() != 1 || node.op->side_effect) return std::vector<ValueId>{};
    const ValueId result = node.results[0];
    const size_t rank = graph.type(result).shape.size();
    std::optional<Ints> perm;
    std::vector<ValueId> sources, transposed;
    for (ValueId v : node.operands) {
      if (!v.valid()) {
        sources.push_back(v);
        continue;
      }
      if (is_transpose(v)) {
        Ints p = graph.producer(v)->attributes.ints("perm");
        if (p.size() != rank || (perm && *perm != p)) return std::vector<ValueId>{};
        perm = std::move(p);
        sources.push_back(graph.producer(v)->operands[0]);
        if (std::find(transposed.begin(), transposed.end(), v) == transposed.end()) transposed.push_back(v);
      } else if (one_element(graph.type(v)) && graph.type(v).shape.size() <= rank)
        sources.push_back(v); // the same under any order
      else
        return std::vector<ValueId>{};
    }
    const bool known = static_cast<size_t>(result.index) < leads.size();
    if (!perm || (transposed.size() < 2 && !(known && leads[static_cast<size_t>(result.index)])))
      return std::vector<ValueId>{};
    TESSERA_ASSIGN(NodeId moved,
                   graph.add_node(*node.op, std::move(sources), node.attributes, node.location, {""}, node.opset));
    const ValueId value = graph.node(moved).results[0];
    if (graph.type(value).shape.size() != rank) return std::vector<ValueId>{};
    TESSERA_ASSIGN(ValueId back, emit(graph, node.location, "transpose", {value}, {{"perm", *perm}}));
    return std::vector<ValueId>{back};
  });
}

} // namespace tessera::passes
