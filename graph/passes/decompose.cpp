// decompose: composite operators become what they are made of, until only primitives are left.
#include "graph/ir/sizes.h"
#include "graph/passes/passes.h"

namespace tessera::passes {

namespace {
// Whether an input or a node that stays says what the symbol is.
bool is_bound(const Graph& graph, const SymExpr& symbol) {
  bool bound = false;
  SizeDefiners(graph).needed_by(symbol, [&](NodeId id) { bound = bound || !graph.node(id).op->is_composite(); });
  for (ValueId v : graph.inputs())
    for (const SymExpr& e : graph.declared_shape(v)) bound = bound || e.contains(symbol);
  return bound;
}
} // namespace

Result<bool> decompose(Graph& graph, const PassOptions&) {
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    if (!graph.node(id).op->is_composite()) return std::vector<ValueId>{};
    const Node node = graph.node(id); // a copy: the rewrite appends
    const int before = graph.node_count();
    auto values = std::get<Decomposition>(node.op->meaning).rewrite(graph, node, static_cast<int>(node.results.size()));
    if (!values.ok()) return std::move(values).take_error().at(node.location);
    for (size_t r = 0; r < node.results.size(); ++r)
      if (node.results[r].valid() && (r >= values->size() || !(*values)[r].valid()))
        return Diagnostic(ErrorCode::Internal, node.location,
                          "the decomposition of '" + std::string(node.op->name) + "' yields no result " +
                              std::to_string(r));
    // Sizes that only running it defines have other symbols now.
    for (size_t r = 0; r < node.results.size(); ++r) {
      if (!node.results[r].valid()) continue;
      const SymShape now = graph.type((*values)[r]).shape;
      const SymShape said = graph.env().simplify(graph.type(node.results[r]).shape);
      for (size_t d = 0; d < std::min(now.size(), said.size()); ++d) {
        if (graph.env().known_equal(said[d], now[d])) continue;
        if (said[d].is_symbol() && !is_bound(graph, said[d]))
          graph.env().define(said[d], now[d]);
        else
          TESSERA_TRY(graph.env().require(sym_eq(said[d], now[d]), GuardClass::Assumed, "a size that data decides",
                                          node.location));
      }
    }
    for (int i = before; i < graph.node_count(); ++i)
      if (Location& where = graph.node(NodeId{i}).location; where == Location{}) where = node.location;
    return values;
  });
}

} // namespace tessera::passes
