#include "codegen/device/cuda/passes.h"
#include "graph/ops/questions.h"
#include <algorithm>

namespace tessera {
namespace {

bool is_narrow(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

// The f16 or bf16 tensor that `v` widens to f32, perhaps through views: nodes from `v` down to the cast.
std::optional<std::vector<NodeId>> widening_of(const Graph& graph, ValueId v) {
  std::vector<NodeId> chain;
  for (;;) {
    const Node* node = graph.producer(v);
    if (node == nullptr) return std::nullopt;
    chain.push_back(graph.value(v).producer);
    if (ops::is(*node, ScalarOp::Cast))
      return is_narrow(graph.type(node->operands[0]).dtype) ? std::optional(std::move(chain)) : std::nullopt;
    const auto* indexing = node->op->indexing();
    if (indexing == nullptr || !indexing->view) return std::nullopt;
    v = node->operands[0];
  }
}

// The views of such a chain, of the tensor that is cast.
Result<ValueId> without_cast(Graph& graph, const std::vector<NodeId>& chain) {
  ValueId v = graph.node(chain.back()).operands[0];
  for (auto it = chain.rbegin() + 1; it != chain.rend(); ++it) {
    const Node view = graph.node(*it);
    std::vector<ValueId> operands = view.operands;
    operands[0] = v;
    TESSERA_ASSIGN(v, graph.apply(view.op->name, std::move(operands), view.attributes, view.location));
  }
  return v;
}

} // namespace

Result<bool> narrow_products(Graph& graph, const CudaLibraries&) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    if (!ops::is(graph.node(id), Structured::Matmul) && !ops::is(graph.node(id), Structured::GroupedMatmul)) continue;
    const std::vector<ValueId> wide = graph.node(id).operands;
    if (graph.type(wide[0]).dtype != DType::F32) continue;
    const auto a = widening_of(graph, wide[0]), b = widening_of(graph, wide[1]);
    if (!a || !b) continue;
    auto stored = [&](const std::vector<NodeId>& chain) {
      return graph.type(graph.node(chain.back()).operands[0]).dtype;
    };
    if (stored(*a) != stored(*b)) continue;
    TESSERA_ASSIGN(const ValueId x, without_cast(graph, *a));
    TESSERA_ASSIGN(const ValueId y, without_cast(graph, *b));
    Node& node = graph.node(id);
    node.operands[0] = x;
    node.operands[1] = y;
    node.attributes.set("wide", int64_t{1});
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

} // namespace tessera
