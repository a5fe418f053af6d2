// sink-views: f(view(x), 0.5) becomes view(f(x, 0.5)) for views that keep or repeat every element (reshape, transpose,
// expand) and operators of one tensor and scalars.
//
// A view costs nothing wherever it stands, but what stands before it can join whoever makes x: the scale of a query
// that was reshaped into heads becomes part of the projection, whose result is then written in its own order; a scale
// behind repeated heads is applied once to each head that there is.
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
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    const Node node = graph.node(id);
    const std::vector<ValueId> nothing;
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
