#include "graph/ir/sizes.h"
#include "graph/ir/operator.h"
#include <algorithm>

namespace tessera {

std::vector<DefinedSize> defined_sizes(const Graph& graph, const Node& node) {
  std::vector<DefinedSize> out;
  if (!node.op->data_dependent_shape) return out;
  auto add = [&](DefinedSize d) {
    for (const DefinedSize& o : out)
      if (o.symbol == d.symbol) return;
    out.push_back(std::move(d));
  };
  if (const auto* names = node.attributes.get<std::vector<std::string>>("symbols")) {
    for (size_t i = 0; i < names->size(); ++i)
      if (auto s = graph.env().find((*names)[i])) add({*s, 0, -1, static_cast<int>(i)});
    return out;
  }
  auto any_has = [](const Graph& of, const std::vector<ValueId>& values, const SymExpr& symbol) {
    return std::any_of(values.begin(), values.end(), [&](ValueId v) {
      if (!v.valid()) return false;
      const SymShape& shape = of.declared_shape(v);
      return std::find(shape.begin(), shape.end(), symbol) != shape.end();
    });
  };
  auto is_operands = [&](const SymExpr& symbol) { // a body may yield a captured value of such a size
    if (any_has(graph, node.operands, symbol)) return true;
    for (const auto& [name, value] : node.attributes.items())
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&value);
          body && any_has(**body, (*body)->inputs(), symbol))
        return true;
    return false;
  };
  for (size_t r = 0; r < node.results.size(); ++r) {
    if (!node.results[r].valid()) continue;
    const SymShape& shape = graph.declared_shape(node.results[r]);
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d].is_symbol() && !is_operands(shape[d])) add({shape[d], static_cast<int>(r), static_cast<int>(d)});
  }
  return out;
}

SizeDefiners::SizeDefiners(const Graph& graph) {
  for (int i = 0; i < graph.node_count(); ++i) {
    const NodeId id{i};
    if (graph.node(id).removed) continue;
    for (const DefinedSize& d : defined_sizes(graph, graph.node(id))) {
      auto [definer, fresh] = by_symbol_.emplace(d.symbol.symbol_id(), id);
      // While a composite is replaced, what it was made of defines its sizes.
      if (!fresh && graph.node(definer->second).op->is_composite()) definer->second = id;
    }
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
    if (const auto* sizes = std::get_if<SymShape>(&value))
      add(*sizes);
    else if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&value))
      add(all_sizes(**body));
  return all;
}

bool reads(const Graph& graph, const Node& read, ValueId value) {
  const Node* vector = read.operands[0].valid() ? graph.producer(read.operands[0]) : nullptr;
  return read.operands[0] == value || (vector && vector->op->name == "reshape" && vector->operands[0] == value);
}

std::vector<SymExpr> all_sizes(const Graph& graph) {
  std::vector<SymExpr> all;
  auto add = [&](const std::vector<SymExpr>& sizes) { all.insert(all.end(), sizes.begin(), sizes.end()); };
  for (int i = 0; i < graph.value_count(); ++i) {
    const Value& v = graph.value(ValueId{i});
    if (v.producer.valid() && graph.node(v.producer).removed) continue;
    add(v.type.shape);
    if (v.declared) add(*v.declared);
    if (v.contents) add(*v.contents);
  }
  for (int i = 0; i < graph.node_count(); ++i) {
    if (graph.node(NodeId{i}).removed) continue;
    for (const auto& [name, value] : graph.node(NodeId{i}).attributes.items())
      if (const auto* sizes = std::get_if<SymShape>(&value))
        add(*sizes);
      else if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&value))
        add(all_sizes(**body));
  }
  for (const Guard& g : graph.env().guards()) all.push_back(g.condition);
  return all;
}

std::vector<std::string> read_symbols(std::string_view name, int64_t count) {
  std::string base(name);
  for (char& c : base)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  if (base.empty() || std::isdigit(static_cast<unsigned char>(base[0]))) base.insert(0, "v");
  if (count == 1) return {base};
  std::vector<std::string> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(base + "_" + std::to_string(i));
  return out;
}

ValueId read_of(const Graph& graph, ValueId value) {
  for (int i = graph.node_count(); i-- > 0;)
    if (const Node& n = graph.node(NodeId{i});
        !n.removed && n.op->structured() && n.op->structured()->kind == Structured::Read && reads(graph, n, value))
      return n.results[0];
  return {};
}

} // namespace tessera
