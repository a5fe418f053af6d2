#include "codegen/driver/host_payload.h"
#include "graph/ir/operator.h"
#include "graph/ir/sizes.h"
#include <algorithm>
#include <new>
#include <unordered_set>

namespace tessera {
namespace {

constexpr int64_t kConstantElements = 64; // largest constant operand that shape inference may read: axes, sizes, counts

// A graph with the node alone. It has the symbols of the graph around it; their text names those that it speaks of.
Result<Graph> alone(const Graph& graph, const Node& node) {
  Graph out("host", std::make_shared<ShapeEnv>(graph.env().inner()));
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
    type.shape = graph.env().simplify(type.shape);
    operands.push_back(out.add_input("operand" + std::to_string(i), std::move(type)));
  }
  Attributes attributes;
  for (const auto& [name, value] : node.attributes.items()) {
    const auto* dims = std::get_if<SymShape>(&value);
    attributes.set(name, dims ? Attribute(graph.env().simplify(*dims)) : value);
  }
  std::vector<std::string> names;
  for (size_t r = 0; r < node.results.size(); ++r) names.push_back("result" + std::to_string(r));
  TESSERA_ASSIGN(NodeId id, out.add_node(*node.op, operands, std::move(attributes), node.location, names, node.opset));
  const Node& copy = out.node(id);
  for (size_t r = 0; r < copy.results.size(); ++r)
    if (copy.results[r].valid()) out.add_output(names[r], copy.results[r]);
  // Other facts about these symbols, on which inferred sizes may depend.
  std::unordered_set<uint64_t> used;
  for (const SymExpr& e : all_sizes(out))
    for (const SymExpr& s : e.symbols()) used.insert(s.symbol_id());
  for (const Guard& g : graph.env().guards()) {
    const auto symbols = g.condition.symbols();
    if (std::all_of(symbols.begin(), symbols.end(), [&](const SymExpr& s) { return used.contains(s.symbol_id()); }))
      out.env().add_guard(g);
  }
  return out;
}

} // namespace

std::string host_payload(const Graph& graph, const Node& node) {
  auto one = alone(graph, node);
  std::string text = one.ok() ? print(*one, true) : "";
  auto read = one.ok() ? parse_graph(text) : std::move(one);
  if (!read.ok() && read.error().code == ErrorCode::OutOfMemory) throw std::bad_alloc(); // it says nothing of the node
  return read.ok() ? text : "";
}

} // namespace tessera
