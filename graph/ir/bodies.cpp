#include "graph/ir/bodies.h"
#include "graph/ir/sizes.h"
#include <unordered_map>

namespace tessera {

namespace {
bool is_constant(const OpDef& op) { return op.structured() && op.structured()->kind == Structured::Constant; }
} // namespace

DType pointwise_dtype(DType body, std::span<const DType> operands) {
  if (body == DType::Bool) return DType::Bool;
  for (DType d : operands)
    if (d != DType::Bool) return compute_dtype(d) == body ? d : body;
  return body;
}

Result<ScalarId> build_pointwise(const Graph& graph, const Node& node, ScalarDag& dag,
                                 const std::function<std::vector<ScalarId>(int operand)>& at) {
  const Pointwise* pointwise = node.op->pointwise();
  TESSERA_CHECK(pointwise != nullptr, "'" + std::string(node.op->name) + "' is not pointwise");
  // Left-out operands at the end are not stored in the node, but the body may look at them.
  size_t count = node.operands.size();
  if (!node.op->operands.empty() && !node.op->operands.back().variadic)
    count = std::max(count, node.op->operands.size());
  std::vector<ScalarId> loads(count, -1);
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (!node.operands[i].valid()) continue;
    DType storage = graph.type(node.operands[i]).dtype;
    loads[i] = dag.cast(dag.load(static_cast<int>(i), storage, at(static_cast<int>(i))), compute_dtype(storage));
  }
  return pointwise->body(dag, loads, node, graph);
}

Graph scratch_graph(const Graph& graph, const Node& node, Node& copy) {
  Graph scratch("scratch", graph.shared_env());
  copy = node;
  copy.results.clear();
  std::unordered_map<ValueId, ValueId> renamed; // x * x stays a product of one value with itself
  for (ValueId& operand : copy.operands) {
    if (!operand.valid()) continue;
    auto [it, fresh] = renamed.try_emplace(operand);
    if (fresh) {
      const Value& value = graph.value(operand);
      const Node* producer = graph.producer(operand);
      if (producer != nullptr && is_constant(*producer->op) && graph.constant(operand) != nullptr) {
        it->second = scratch.add_constant(*graph.constant(operand), value.name);
      } else {
        it->second = scratch.add_input(value.name, value.type);
        scratch.value(it->second).contents = value.contents;
        if (!value.contents)
          if (ValueId read = read_of(graph, operand); read.valid())
            scratch.value(it->second).contents = graph.value(read).contents;
      }
    }
    operand = it->second;
  }
  return scratch;
}

} // namespace tessera
