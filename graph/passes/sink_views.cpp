// sink-views: f(view(x), 0.5) becomes view(f(x, 0.5)) for views that keep or repeat every element (reshape, transpose,
// expand) and operators of one tensor and scalars.
//
// A view costs nothing wherever it stands, but what stands before it can join whoever makes x: the scale of a query
// that was reshaped into heads becomes part of the projection, whose result is then written in its own order; a scale
// behind repeated heads is applied once to each head that there is.
//
// An operator moves past one view after the other, and views of views become one on the way, so that a chain in which
// the two alternate is left with few views. Where views do not compose, the k-th operator of such a chain moves past k of
// them: the pass ends when it has added a few nodes for each node of the graph.
#include "graph/passes/passes.h"
#include <algorithm>

namespace tessera::passes {

namespace {

bool keeps_elements(const Node* node) {
  return is_op(node, "reshape") || is_op(node, "transpose") || is_op(node, "expand");
}

bool one_element(const TensorType& type) {
  return std::all_of(type.shape.begin(), type.shape.end(), [](const SymExpr& e) { return e.is_const(1); });
}

} // namespace

Result<bool> sink_views(Graph& graph, const PassOptions&) {
  constexpr int kAdded = 8; // nodes for each node of the graph
  const int most = (1 + kAdded) * graph.node_count();
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    const Node node = graph.node(id);
    const std::vector<ValueId> nothing;
    if (graph.node_count() >= most) return nothing;
    if (keeps_elements(&node)) {
      TESSERA_ASSIGN(const ValueId composed, simplify_view(graph, id));
      return composed.valid() ? std::vector<ValueId>{composed} : nothing;
    }
    if (!node.op->pointwise() || node.results.size() != 1 || node.op->side_effect) return nothing;
    ValueId viewed;
    for (ValueId v : node.operands) {
      if (!v.valid() || one_element(graph.type(v))) continue;
      if (viewed.valid() && viewed != v) return nothing;
      viewed = v;
    }
    if (!viewed.valid() || !keeps_elements(graph.producer(viewed))) return nothing;
    const Node view = *graph.producer(viewed);
    const ValueId source = view.operands[0];
    const int rank = graph.type(source).rank();
    if (graph.constant(source) || graph.type(node.results[0]).shape != graph.type(viewed).shape) return nothing;
    std::vector<ValueId> operands = node.operands;
    for (ValueId& v : operands) {
      if (v == viewed)
        v = source;
      else if (v.valid() && graph.type(v).rank() > rank)
        return nothing; // it would add dimensions
    }
    TESSERA_ASSIGN(NodeId moved,
                   graph.add_node(*node.op, std::move(operands), node.attributes, node.location, {""}, node.opset));
    const ValueId value = graph.node(moved).results[0];
    TESSERA_ASSIGN(ValueId back, emit(graph, node.location, view.op->name, {value}, view.attributes));
    return std::vector<ValueId>{back};
  });
}

} // namespace tessera::passes
