#include "codegen/driver/legalize.h"
#include "codegen/driver/kernels.h"
#include "codegen/schedule/own_kernels.h"
#include "graph/ops/op.h"

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
      if (!is_half(graph.type(operands[i]).dtype)) continue;
      TESSERA_ASSIGN(operands[i], graph.apply("cast", {operands[i]}, {{"to", DType::F32}}, node.location));
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
  if (std::string why; has_own_kernel(graph, node, &why))
    return true;
  else if (!why.empty())
    return no(why);
  return is_product(*node.op) || no("no host kernel for operator " + std::string(node.op->name));
}

bool host_as_loops(const Graph& graph, NodeId id) {
  const auto& node = graph.node(id);
  if (graph.type(node.operands[0]).dtype != DType::F32) return true;
  int spatial = graph.type(node.operands[0]).rank() - 2;
  return node.op->structured()->kind != Structured::Matmul && (spatial < 1 || spatial > 3);
}

} // namespace tessera
