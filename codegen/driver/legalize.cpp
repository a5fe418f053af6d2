#include "codegen/driver/legalize.h"
#include "codegen/driver/kernels.h"
#include "graph/ops/op.h"
#include "runtime/library/support.h"

namespace tessera {
namespace {

bool is_half(DType d) { return d == DType::F16 || d == DType::BF16; }

bool is_product(const OpDef& op) {
  const auto* s = op.structured();
  return s && (s->kind == Structured::Matmul || s->kind == Structured::Conv || s->kind == Structured::Pool);
}

} // namespace

Status legalize_for_host(Graph& graph) {
  bool changed = false;
  for (auto id : graph.order()) {
    const Node node = graph.node(id);
    if (!is_product(*node.op) || node.operands.empty()) continue;
    DType dtype = graph.type(node.operands[0]).dtype;
    if (!is_half(dtype)) continue;
    auto operands = node.operands;
    for (size_t i = 0; i < operands.size(); ++i) {
      bool packed_weight = i == 1 && graph.constant(operands[i]) != nullptr;
      if (!packed_weight && is_half(graph.type(operands[i]).dtype)) {
        TESSERA_ASSIGN(operands[i], graph.apply("cast", {operands[i]}, {{"to", DType::F32}}, node.location));
      }
    }
    TESSERA_ASSIGN(auto wide, graph.add_node(*node.op, operands, node.attributes, node.location));
    TESSERA_ASSIGN(auto back, graph.apply("cast", {graph.node(wide).results[0]}, {{"to", dtype}}, node.location));
    graph.value(back).name = graph.value(node.results[0]).name;
    graph.value(node.results[0]).name.clear();
    graph.replace_all_uses(node.results[0], back);
    graph.remove_node(id);
    changed = true;
  }
  if (changed) graph.compact();
  return {};
}

bool host_supports(const Graph& graph, NodeId id, std::string* why_not) {
  const auto& node = graph.node(id);
  auto no = [&](std::string why) {
    if (why_not) *why_not = std::move(why);
    return false;
  };
  const auto* structured = node.op->structured();
  if (structured && structured->kind == Structured::Constant) return true;
  if (node.op->data_dependent_shape) return no("the sizes of its results depend on data");
  for (const auto* values : {&node.operands, &node.results})
    for (auto v : *values)
      if (v.valid() && !host_code_takes(graph.type(v).dtype))
        return no("no generated code for element type " + std::string(name(graph.type(v).dtype)));
  if (!structured) return true;
  auto type = [&](size_t i) -> const TensorType& { return graph.type(node.operands[i]); };
  switch (structured->kind) {
  case Structured::Matmul:
    return library::matmul_takes(type(0).dtype, graph.constant(node.operands[1]) != nullptr, type(1).dtype, why_not);
  case Structured::Conv:
    return library::conv_takes(type(0).dtype, graph.constant(node.operands[1]) != nullptr, type(1).dtype, type(0).rank() - 2, why_not);
  case Structured::Pool: return library::pool_takes(type(0).dtype, type(0).rank() - 2, why_not);
  default: return no("no host kernel for operator " + std::string(node.op->name));
  }
}

} // namespace tessera
