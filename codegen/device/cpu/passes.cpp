#include "codegen/device/cpu/cpu.h"
#include "codegen/device/integer_products.h"
#include <algorithm>

namespace tessera {
namespace {

// True if a library supports the node only in a wider dtype.
bool is_widened(const DeviceRoutes& routes, const Graph& graph, const Node& node) {
  const auto* structured = node.op->structured();
  if (!structured || node.operands.empty()) return false;
  const DType dtype = graph.type(node.operands[0]).dtype;
  const auto& all = routes.of(structured->kind);
  return std::any_of(all.begin(), all.end(), [&](const Route& r) {
    return std::find(r.widened.begin(), r.widened.end(), dtype) != r.widened.end();
  });
}

} // namespace

Result<bool> widen_halves(Graph& graph, const DeviceRoutes& routes) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    const Node node = graph.node(id);
    if (!is_widened(routes, graph, node)) continue;
    const DType dtype = graph.type(node.results[0]).dtype;
    auto operands = node.operands;
    for (ValueId& operand : operands) {
      const DType narrow = graph.type(operand).dtype;
      if (narrow != DType::F16 && narrow != DType::BF16) continue;
      TESSERA_ASSIGN(operand, graph.apply("cast", {operand}, {{"to", DType::F32}}, node.location));
    }
    TESSERA_ASSIGN(NodeId wide, graph.add_node(*node.op, operands, node.attributes, node.location));
    ValueId back = graph.node(wide).results[0];
    if (graph.type(back).dtype != dtype) {
      TESSERA_ASSIGN(back, graph.apply("cast", {back}, {{"to", dtype}}, node.location));
    }
    graph.value(back).name = graph.value(node.results[0]).name;
    graph.value(node.results[0]).name.clear();
    graph.replace_all_uses(node.results[0], back);
    graph.remove_node(id);
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

std::vector<CompilePass> cpu_passes() {
  return {{"integer-products", "products of 8-bit integers become exact ones in floating point, which the library has",
           PassLevel::Graph, [](Compilation& c) { return small_integer_products(c.graph(), true); }},
          {"widen-halves", "products and convolutions in f16 and bf16 become f32 ones, which the library has",
           PassLevel::Graph, [](Compilation& c) { return widen_halves(c.graph(), *c.backend().routes()); }}};
}

} // namespace tessera
