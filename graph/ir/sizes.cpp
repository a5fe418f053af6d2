#include "graph/ir/sizes.h"
#include "graph/ops/op.h"

namespace tessera {

SizeDefiners::SizeDefiners(const Graph& graph) {
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    if (!n.op->data_dependent_shape) continue;
    for (ValueId v : n.results)
      if (v.valid())
        for (const SymExpr& size : graph.declared_shape(v))
          if (size.is_symbol()) by_symbol_.emplace(size.symbol_id(), id);
  }
  for (ValueId v : graph.inputs()) // those that a call binds
    for (const SymExpr& size : graph.declared_shape(v))
      for (const SymExpr& symbol : size.symbols()) by_symbol_.erase(symbol.symbol_id());
}

std::vector<SymExpr> SizeDefiners::sizes_of(const Graph& graph, NodeId id) {
  std::vector<SymExpr> all;
  auto add = [&](const std::vector<SymExpr>& sizes) { all.insert(all.end(), sizes.begin(), sizes.end()); };
  const Node& node = graph.node(id);
  for (ValueId v : node.results)
    if (v.valid()) add(graph.type(v).shape);
  for (ValueId v : node.operands)
    if (v.valid() && graph.value(v).contents) add(*graph.value(v).contents);
  for (const auto& [name, value] : node.attributes.items())
    if (const auto* sizes = std::get_if<SymShape>(&value)) add(*sizes);
  return all;
}

} // namespace tessera
