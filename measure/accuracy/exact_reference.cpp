#include "measure/accuracy/exact_reference.h"
#include "graph/ir/operator.h"
#include "graph/ir/sizes.h"
#include "graph/scalar/scalar.h"
#include <algorithm>

namespace tessera::accuracy {

namespace {

Result<Tensor> as_type(const Tensor& tensor, DType dtype) {
  if (!tensor.defined() || tensor.dtype() == dtype || !is_float(tensor.dtype()) || !is_float(dtype)) return tensor;
  TESSERA_ASSIGN(Tensor out, Tensor::create(dtype, tensor.dims()));
  for (int64_t i = 0; i < tensor.count(); ++i) out.set_f64(i, tensor.get_f64(i));
  return out;
}

} // namespace

bool computes_by(const Graph& graph, const Node& node, std::initializer_list<ScalarOp> ops) {
  const auto* pointwise = node.op->pointwise();
  if (!pointwise) return false;
  ScalarDag dag;
  std::vector<ScalarId> loads;
  for (size_t k = 0; k < node.operands.size(); ++k) {
    const ValueId v = node.operands[k];
    loads.push_back(v.valid() ? dag.load(static_cast<int>(k), compute_dtype(graph.type(v).dtype), {}) : -1);
  }
  if (!pointwise->body(dag, loads, node, graph).ok()) return false;
  for (ScalarId id = 0; id < dag.size(); ++id)
    if (std::find(ops.begin(), ops.end(), dag[id].op) != ops.end()) return true;
  return false;
}

namespace {

// Whether the operator reads the bits of its operand as another type.
bool reads_bits(const Graph& graph, const Node& node) { return computes_by(graph, node, {ScalarOp::Bitcast}); }

// Whether the node has another meaning on f64 operands.
bool is_of_its_types(const Graph& graph, const Node& node) {
  for (const auto& [name, attribute] : node.attributes.items())
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return true;
  const auto* structured = node.op->structured();
  return (structured && structured->kind == Structured::Alias) || is_random(node) || reads_bits(graph, node);
}

Graph wide_copy(const Graph& graph) {
  Graph wide = graph;
  for (int32_t v = 0; v < wide.value_count(); ++v)
    if (TensorType& type = wide.value({v}).type; is_float(type.dtype)) type.dtype = DType::F64;
  for (NodeId id : wide.order()) {
    Attributes& attributes = wide.node(id).attributes;
    const auto items = attributes.items();
    for (const auto& [name, attribute] : items)
      if (const DType* dtype = std::get_if<DType>(&attribute); dtype && is_float(*dtype))
        attributes.set(name, DType::F64);
  }
  return wide;
}

} // namespace

Result<Tensor> widened(const Tensor& tensor) { return as_type(tensor, DType::F64); }

bool is_random(const Node& node) {
  for (const auto& [name, attribute] : node.attributes.items())
    if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute))
      for (NodeId id : (*body)->order())
        if (is_random((*body)->node(id))) return true;
  const auto* structured = node.op->structured();
  const bool reads = structured && structured->kind == Structured::Read; // it defines sizes, and does nothing else
  return node.op->side_effect && !reads && !node.attributes.has("seed");
}

ExactReference::ExactReference(const Graph& graph) : graph_(graph), wide_(wide_copy(graph)) {}

Result<std::vector<Tensor>> ExactReference::node(NodeId id, std::vector<Tensor> operands, const SymValues& sizes) {
  const Node& node = graph_.node(id);
  const bool narrow = is_of_its_types(graph_, node);
  for (size_t k = 0; k < node.operands.size(); ++k) {
    if (!node.operands[k].valid()) continue;
    const DType dtype = narrow ? graph_.type(node.operands[k]).dtype : DType::F64;
    TESSERA_ASSIGN(operands[k], as_type(operands[k], dtype));
  }
  const Graph& graph = narrow ? graph_ : wide_;
  TESSERA_ASSIGN(auto results, evaluate_node(graph, graph.node(id), std::move(operands), sizes));
  for (Tensor& t : results) {
    TESSERA_ASSIGN(t, widened(t));
  }
  return results;
}

void bind_defined_sizes(const Graph& graph, const Node& node, const std::vector<Tensor>& results, SymValues& sizes) {
  for (const DefinedSize& d : defined_sizes(graph, node)) {
    const Tensor& t = results[static_cast<size_t>(d.result)];
    sizes.emplace(d.symbol.symbol_id(), d.dim >= 0 ? t.dims()[static_cast<size_t>(d.dim)]
                                                   : std::clamp(t.get_i64(d.element), -kReadMax, kReadMax));
  }
  // Dimensions whose symbols nothing else defines.
  for (size_t r = 0; r < node.results.size(); ++r) {
    if (!node.results[r].valid()) continue;
    const SymShape& shape = graph.type(node.results[r]).shape;
    for (size_t d = 0; d < std::min(shape.size(), results[r].dims().size()); ++d)
      if (shape[d].is_symbol()) sizes.emplace(shape[d].symbol_id(), results[r].dims()[d]);
  }
}

Status ExactReference::run(const std::map<std::string, Tensor>& inputs, SymValues& sizes, const Each& each) {
  const std::vector<NodeId> order = graph_.order();
  std::vector<int> uses(static_cast<size_t>(graph_.value_count())); // a tensor is freed after its last use
  for (NodeId id : order)
    for (ValueId v : graph_.node(id).operands)
      if (v.valid()) ++uses[static_cast<size_t>(v.index)];
  std::vector<Tensor> tensors(static_cast<size_t>(graph_.value_count()));
  for (ValueId v : graph_.inputs()) {
    auto it = inputs.find(graph_.value(v).name);
    if (it == inputs.end())
      return Diagnostic(ErrorCode::MissingInput, "input '" + graph_.value(v).name + "' is not given");
    TESSERA_ASSIGN(tensors[static_cast<size_t>(v.index)], widened(it->second));
  }
  for (NodeId id : order) {
    const Node& node = graph_.node(id);
    std::vector<Tensor> operands;
    for (ValueId v : node.operands) operands.push_back(v.valid() ? tensors[static_cast<size_t>(v.index)] : Tensor());
    std::vector<Tensor> results;
    const auto* structured = node.op->structured();
    if (structured && structured->kind == Structured::Constant) { // widened where it is used
      TESSERA_ASSIGN(results, evaluate_node(graph_, node, {}, sizes));
    } else {
      TESSERA_ASSIGN(results, this->node(id, std::move(operands), sizes));
      TESSERA_TRY(each(id, results));
    }
    bind_defined_sizes(graph_, node, results, sizes);
    for (size_t r = 0; r < node.results.size(); ++r)
      if (node.results[r].valid() && uses[static_cast<size_t>(node.results[r].index)] > 0)
        tensors[static_cast<size_t>(node.results[r].index)] = std::move(results[r]);
    for (ValueId v : node.operands)
      if (v.valid() && --uses[static_cast<size_t>(v.index)] == 0) tensors[static_cast<size_t>(v.index)] = Tensor();
  }
  return {};
}

} // namespace tessera::accuracy
