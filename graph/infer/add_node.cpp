// The members of Graph that infer: what they add has types and contents.
#include "graph/infer/infer.h"
#include "graph/ir/sizes.h"
#include <algorithm>

namespace tessera {

ValueId Graph::add_constant(Tensor value, std::string name) {
  const OpDef* op = OpTable::get().find("constant");
  TESSERA_CHECK(op != nullptr, "the operator 'constant' is not defined");
  Attributes attributes;
  attributes.set("value", std::move(value));
  auto node = add_node(*op, {}, std::move(attributes), {}, {std::move(name)});
  TESSERA_CHECK(node.ok(), node.error().str());
  return this->node(*node).results[0];
}

Result<NodeId> Graph::add_node(const OpDef& op, std::vector<ValueId> operands, Attributes attributes, Location location,
                               std::vector<std::string> result_names, int opset) {
  Node n;
  n.op = &op;
  while (!operands.empty() && !operands.back().valid()) operands.pop_back(); // left out at the end: one spelling only
  n.operands = std::move(operands);
  n.attributes = std::move(attributes);
  n.location = std::move(location);
  n.opset = opset;
  for (ValueId v : n.operands)
    TESSERA_CHECK(v.index < value_count(), "operand of '" + std::string(op.name) + "' is not a value of this graph");
  if (auto status = complete_attributes(op, n.attributes); !status.ok())
    return std::move(status).take_error().at(n.location);
  InferContext context{*this, n, static_cast<int>(result_names.size()), {}, {}};
  if (auto status = infer_node(context); !status.ok()) return std::move(status).take_error().at(n.location);
  for (const InferContext::Read& r : context.reads) {
    const ValueId what = n.operands[static_cast<size_t>(r.operand)];
    TESSERA_ASSIGN(ValueId contents, read(what, r.symbols, n.location));
    std::replace(n.operands.begin(), n.operands.end(), what, contents);
  }

  NodeId id{node_count()};
  for (size_t i = 0; i < result_names.size(); ++i) {
    Value v;
    v.type = std::move(context.results[i]);
    v.name = std::move(result_names[i]);
    v.producer = id;
    v.result = static_cast<int>(i);
    v.contents = std::move(context.contents[i]);
    values_.push_back(std::move(v));
    n.results.push_back(ValueId{value_count() - 1});
  }
  nodes_.push_back(std::move(n));
  const Node& added = node(id);
  for (size_t r = 0; r < added.results.size(); ++r) {
    Value& v = value(added.results[r]);
    if (!v.contents) v.contents = infer_contents(*this, added, v.type, static_cast<int>(r));
    if (!v.contents) v.contents = constant_contents(*this, added.results[r]);
  }
  bind_constant_node(*this, id);
  return id;
}

Result<ValueId> Graph::read(ValueId value, std::span<const SymExpr> symbols, const Location& location) {
  if (const auto contents = this->value(value).contents) {
    for (size_t k = 0; k < std::min(symbols.size(), contents->size()); ++k) {
      const SymExpr &symbol = symbols[k], &known = (*contents)[k];
      if (!symbol.is_symbol() || symbol == known) continue;
      if (!env().substitutions().contains(symbol.symbol_id()))
        env().define(symbol, known);
      else
        TESSERA_TRY(env().require_equal(symbol, known, "a size that is computed", location));
    }
    return value;
  }
  // A number of elements that was assumed is a number from here on.
  if (const auto n = static_cast<int64_t>(symbols.size()); !type(value).count().is_const(n)) {
    TESSERA_ASSIGN(value, apply("reshape", {value}, {{"shape", SymShape{SymExpr(n)}}}, location));
  }
  if (ValueId made = read_of(*this, value); made.valid()) return made;
  std::vector<std::string> names;
  for (const SymExpr& s : symbols) names.push_back(s.symbol_name());
  return apply("read", {value}, {{"symbols", std::move(names)}}, location);
}

Result<ValueId> Graph::apply(std::string_view op, std::vector<ValueId> operands, Attributes attributes,
                             Location location) {
  const OpDef* def = OpTable::get().find(op);
  TESSERA_CHECK(def != nullptr, "no operator is called '" + std::string(op) + "'");
  TESSERA_ASSIGN(NodeId id, add_node(*def, std::move(operands), std::move(attributes), std::move(location)));
  return node(id).results[0];
}

} // namespace tessera
