#include "codegen/driver/host_payload.h"
#include "graph/ops/op.h"
#include "graph/reference/evaluator.h"

namespace tessera {
namespace {

constexpr int64_t kConstantElements = 64; // axes, sizes, counts: what inference looks at

bool computes(const Node& node) {
  const auto* structured = node.op->structured();
  return !structured || structured->kind != Structured::Constant;
}

// The node alone, in an environment that knows its symbols and nothing else.
Result<Graph> alone(const Graph& graph, const Node& node) {
  Graph out("host");
  std::unordered_map<uint64_t, SymExpr> symbols; // of the graph -> ours
  auto mine = [&](const SymShape& shape) {
    SymShape moved;
    for (const SymExpr& e : shape) {
      SymExpr simple = graph.env().simplify(e);
      for (const SymExpr& s : simple.symbols())
        if (!symbols.contains(s.symbol_id()))
          symbols.emplace(s.symbol_id(), out.env().named_symbol(s.symbol_name(), graph.env().range(s)));
      moved.push_back(simple.substitute(symbols));
    }
    return moved;
  };
  std::vector<ValueId> operands;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    ValueId v = node.operands[i];
    if (!v.valid()) {
      operands.emplace_back();
      continue;
    }
    const Tensor* constant = graph.constant(v);
    if (constant && constant->count() <= kConstantElements) {
      operands.push_back(out.add_constant(*constant, "operand" + std::to_string(i)));
      continue;
    }
    TensorType type = graph.type(v);
    type.shape = mine(type.shape);
    operands.push_back(out.add_input("operand" + std::to_string(i), std::move(type)));
  }
  Attributes attributes;
  for (const auto& [name, value] : node.attributes.items()) {
    if (std::holds_alternative<std::shared_ptr<Graph>>(value))
      return Diagnostic(ErrorCode::UnsupportedFeature, node.location, "a subgraph");
    const auto* dims = std::get_if<SymShape>(&value);
    attributes.set(name, dims ? Attribute(mine(*dims)) : value);
  }
  std::vector<std::string> names;
  for (size_t r = 0; r < node.results.size(); ++r) names.push_back("result" + std::to_string(r));
  TESSERA_ASSIGN(NodeId id, out.add_node(*node.op, operands, std::move(attributes), node.location, names, node.opset));
  const Node& copy = out.node(id);
  for (size_t r = 0; r < copy.results.size(); ++r)
    if (copy.results[r].valid()) out.add_output(names[r], copy.results[r]);
  return out;
}

} // namespace

std::string host_payload(const Graph& graph, const Node& node) {
  auto one = alone(graph, node);
  if (!one.ok()) return "";
  std::string text = print(*one, true);
  return parse_graph(text).ok() ? text : "";
}

Result<decltype(HostStep::run)> resolve_host_step(const HostStep& step, const ShapeEnv& env) {
  auto corrupt = [&](const std::string& what) {
    return Diagnostic(ErrorCode::CorruptFile, "operator '" + step.name + "' cannot be made again: " + what)
        .note("write the file again with `tessera compile`");
  };
  auto parsed = parse_graph(step.payload, step.name);
  if (!parsed.ok()) return corrupt(parsed.error().str());
  auto graph = std::make_shared<const Graph>(std::move(*parsed));
  NodeId found;
  for (NodeId id : graph->order()) {
    if (!computes(graph->node(id))) continue;
    if (found.valid()) return corrupt("its text has several operators");
    found = id;
  }
  if (!found.valid() || graph->node(found).op->name != step.op) return corrupt("its text has no '" + step.op + "'");
  if (graph->node(found).operands.size() != step.inputs.size() ||
      graph->node(found).results.size() != step.outputs.size())
    return corrupt("its text has another number of operands or results");
  std::vector<std::pair<uint64_t, uint64_t>> symbols; // the executable's, the text's
  for (const SymExpr& s : graph->env().symbols())
    if (auto known = env.find(s.symbol_name())) symbols.emplace_back(known->symbol_id(), s.symbol_id());
  return decltype(HostStep::run)([graph, found, symbols](const std::vector<Tensor>& operands, const SymValues& sizes) {
    SymValues own;
    for (auto [theirs, ours] : symbols)
      if (auto it = sizes.find(theirs); it != sizes.end()) own.emplace(ours, it->second);
    return evaluate_node(*graph, graph->node(found), operands, own);
  });
}

} // namespace tessera
