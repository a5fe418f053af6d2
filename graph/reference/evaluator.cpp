#include "graph/reference/evaluator.h"
#include "base/guarded.h"
#include "graph/ir/sizes.h"
#include "graph/reference/context.h"
#include <algorithm>

namespace tessera {

Result<Dims> ReferenceContext::dims(std::string_view attribute) const {
  Dims out;
  for (const SymExpr& e : node.attributes.dims(attribute)) {
    TESSERA_ASSIGN(int64_t value, eval(e));
    out.push_back(value);
  }
  return out;
}

Diagnostic ReferenceContext::error(ErrorCode code, std::string message) const {
  return {code, node.location, std::move(message)};
}

namespace {

Result<int64_t> value_of(const ShapeEnv& env, const SymExpr& e, const SymValues& symbols) {
  auto value = e.eval(symbols);
  if (value.ok()) return value;
  SymExpr simpler = env.simplify(e); // an equality found since may do without the unbound symbol
  if (simpler == e) return value;
  return simpler.eval(symbols);
}

bool undefined(const Tensor& t) { return t.count() == 0 && t.dims().empty(); }

// The composite as a graph of its own with its operands as constants, so that its decomposition sees concrete sizes.
Result<std::vector<Tensor>> evaluate_decomposition(const Graph& graph, const Node& node,
                                                   const std::vector<Tensor>& operands, const SymValues& symbols) {
  static thread_local int depth = 0;
  struct Enter {
    Enter() { ++depth; }
    ~Enter() { --depth; }
  } enter;
  if (depth > 32)
    return Diagnostic(ErrorCode::Internal, node.location,
                      "the decomposition of '" + std::string(node.op->name) + "' does not end");
  Graph scratch("scratch");
  Node copy = node;
  copy.results.clear();
  for (size_t i = 0; i < copy.operands.size(); ++i)
    if (copy.operands[i].valid()) {
      const Value& given = graph.value(node.operands[i]);
      copy.operands[i] = scratch.add_constant(operands[i], given.name);
      scratch.value(copy.operands[i]).type.items = given.type.items; // a list does not know whether it is an optional
    }
  for (const auto& [name, attribute] : node.attributes.items()) {
    if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) { // sizes around it are numbers, too
      auto concrete = std::make_shared<Graph>((*body)->clone());
      for (const SymExpr& symbol : graph.env().symbols())
        if (auto value = symbols.find(symbol.symbol_id()); value != symbols.end())
          concrete->env().define(symbol, value->second);
      copy.attributes.set(name, std::move(concrete));
      continue;
    }
    auto* dims = std::get_if<SymShape>(&attribute);
    if (dims == nullptr) continue;
    SymShape concrete;
    for (const SymExpr& e : *dims) {
      TESSERA_ASSIGN(int64_t value, value_of(graph.env(), e, symbols));
      concrete.emplace_back(value);
    }
    copy.attributes.set(name, std::move(concrete));
  }
  TESSERA_ASSIGN(
      auto values,
      std::get<Decomposition>(node.op->meaning).rewrite(scratch, copy, static_cast<int>(node.results.size())));
  if (values.size() < node.results.size())
    return Diagnostic(ErrorCode::Internal, node.location,
                      "the decomposition of '" + std::string(node.op->name) + "' yields too few results");
  for (size_t r = 0; r < values.size(); ++r)
    if (values[r].valid()) scratch.add_output(std::to_string(r), values[r]);
  TESSERA_ASSIGN(auto outputs, evaluate_body(scratch, {}, symbols)); // bodies name sizes around the composite
  std::vector<Tensor> results(values.size());
  for (size_t r = 0, next = 0; r < values.size(); ++r)
    if (values[r].valid()) results[r] = std::move(outputs[next++]);
  return results;
}

// The error of a reference, with its place, and with what it works on where memory is exhausted.
Diagnostic failed(const Node& node, const std::vector<Tensor>& operands, Diagnostic error) {
  if (error.code == ErrorCode::OutOfMemory) {
    size_t bytes = 0;
    for (const Tensor& t : operands) bytes += t.defined() && t.dtype() != DType::String ? t.bytes() : 0;
    error.note("'" + std::string(node.op->name) + "' is computed by its reference on the host; its operands have " +
               std::to_string(bytes) + " bytes");
  }
  return std::move(error).at(node.location);
}

} // namespace

Result<std::vector<Tensor>> evaluate_node(const Graph& graph, const Node& node, std::vector<Tensor> operands,
                                          const SymValues& symbols) {
  const OpDef& op = *node.op;
  for (size_t i = 0; i < node.operands.size(); ++i)
    TESSERA_CHECK(!node.operands[i].valid() || (i < operands.size() && !undefined(operands[i])),
                  "evaluate_node: operand " + std::to_string(i) + " of '" + std::string(op.name) + "' was not given");
  if (op.structured() && op.structured()->kind == Structured::Constant) {
    const Tensor* value = node.attributes.get<Tensor>("value");
    if (value == nullptr || !has_data(*value))
      return Diagnostic(ErrorCode::BadWeights, node.location,
                        "the weight '" + (node.results.empty() ? "" : graph.value(node.results[0]).name) +
                            "' has no data: the graph's text was written without");
    return std::vector<Tensor>{*value};
  }
  if (!op.reference) {
    if (op.is_composite()) return evaluate_decomposition(graph, node, operands, symbols);
    return Diagnostic(ErrorCode::UnsupportedOp, node.location,
                      "'" + std::string(op.name) + "' has no reference implementation");
  }
  ReferenceContext context{node, std::move(operands), {}, static_cast<int>(node.results.size()), {}, {}};
  // References look at every operand of the record; those left out at the end are not stored in the node.
  if (op.operands.empty() || !op.operands.back().variadic)
    context.operands.resize(std::max(context.operands.size(), op.operands.size()));
  for (ValueId r : node.results) context.result_types.push_back(r.valid() ? graph.type(r) : TensorType{});
  context.eval = [&](const SymExpr& e) { return value_of(graph.env(), e, symbols); };
  context.run = [&](const Graph& body, const std::vector<Tensor>& inputs) {
    return evaluate_body(body, inputs, symbols);
  };
  if (auto status = guarded({"operator", op.name}, [&] { return op.reference(context); }); !status.ok())
    return failed(node, context.operands, std::move(status).take_error());
  if (context.results.size() < node.results.size())
    return Diagnostic(ErrorCode::Internal, node.location,
                      "the reference of '" + std::string(op.name) + "' yields " +
                          std::to_string(context.results.size()) + " results instead of " +
                          std::to_string(node.results.size()));
  return std::move(context.results);
}

namespace {

// Do the results have the types that inference promised? Sizes known only at run time are bound here.
Status check_results(const Graph& graph, const Node& node, const std::vector<Tensor>& results, bool check_dims,
                     SymValues& symbols) {
  for (const DefinedSize& d : defined_sizes(graph, node))
    if (d.element >= 0)
      symbols.emplace(d.symbol.symbol_id(),
                      std::clamp(results[static_cast<size_t>(d.result)].get_i64(d.element), -kReadMax, kReadMax));
  for (size_t r = 0; r < node.results.size(); ++r) {
    if (!node.results[r].valid()) continue;
    const TensorType& type = graph.type(node.results[r]);
    const Tensor& t = results[r];
    auto wrong = [&](const std::string& what) {
      return Diagnostic(ErrorCode::Internal, node.location,
                        "result " + std::to_string(r) + " of '" + std::string(node.op->name) + "' was inferred to be " +
                            type.str() + ", but its " + what);
    };
    if (t.dtype() != type.dtype) return wrong("dtype is " + std::string(name(t.dtype())));
    if (static_cast<int>(t.dims().size()) != type.rank()) return wrong("rank is " + std::to_string(t.dims().size()));
    if (!check_dims) continue;
    for (size_t d = 0; d < type.shape.size(); ++d) {
      const SymExpr& e = type.shape[d];
      if (e.is_symbol() && !symbols.count(e.symbol_id()) && graph.env().simplify(e) == e) {
        symbols.emplace(e.symbol_id(), t.dims()[d]);
        continue;
      }
      auto expected = value_of(graph.env(), e, symbols);
      if (expected.ok() && *expected != t.dims()[d])
        return wrong("dimension " + std::to_string(d) + " is " + std::to_string(t.dims()[d]) + ", not " +
                     std::to_string(*expected));
    }
  }
  return {};
}

Result<std::vector<Tensor>> evaluate(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                                     SymValues symbols) {
  // Where an assumption of the compiler fails, shapes were inferred for other sizes; the references do not depend on
  // them.
  bool check_dims = true;
  for (const Guard& g : graph.env().guards()) {
    auto holds = g.condition.eval(symbols);
    check_dims &= !holds.ok() || *holds != 0;
  }
  std::vector<NodeId> order = graph.order();
  std::vector<int> uses(static_cast<size_t>(graph.value_count()), 0); // a tensor is freed after its last use
  for (NodeId id : order)
    for (ValueId v : graph.node(id).operands)
      if (v.valid()) ++uses[static_cast<size_t>(v.index)];
  for (const auto& output : graph.outputs()) ++uses[static_cast<size_t>(output.value.index)];

  std::vector<Tensor> tensors(static_cast<size_t>(graph.value_count()));
  for (ValueId id : graph.inputs()) tensors[static_cast<size_t>(id.index)] = inputs.at(graph.value(id).name);
  for (NodeId id : order) {
    const Node& node = graph.node(id);
    std::vector<Tensor> operands;
    for (ValueId v : node.operands) operands.push_back(v.valid() ? tensors[static_cast<size_t>(v.index)] : Tensor());
    TESSERA_ASSIGN(auto results, evaluate_node(graph, node, std::move(operands), symbols));
    TESSERA_TRY(check_results(graph, node, results, check_dims, symbols));
    for (size_t r = 0; r < node.results.size(); ++r)
      if (node.results[r].valid() && uses[static_cast<size_t>(node.results[r].index)] > 0)
        tensors[static_cast<size_t>(node.results[r].index)] = std::move(results[r]);
    for (ValueId v : node.operands)
      if (v.valid() && --uses[static_cast<size_t>(v.index)] == 0) tensors[static_cast<size_t>(v.index)] = Tensor();
  }
  std::vector<Tensor> outputs;
  for (const auto& output : graph.outputs()) outputs.push_back(tensors[static_cast<size_t>(output.value.index)]);
  return outputs;
}

} // namespace

Result<std::vector<Tensor>> evaluate_graph(const Graph& graph, const std::map<std::string, Tensor>& inputs) {
  TESSERA_ASSIGN(SymValues symbols, bind_symbols(graph, inputs));
  for (const auto& [name, tensor] : inputs) {
    bool known = false;
    for (ValueId id : graph.inputs()) known |= graph.value(id).name == name;
    if (!known) return Diagnostic(ErrorCode::UnknownInput, "the graph has no input '" + name + "'");
  }
  return evaluate(graph, inputs, std::move(symbols));
}

Result<std::vector<Tensor>> evaluate_body(const Graph& graph, const std::vector<Tensor>& inputs,
                                          const SymValues& known) {
  TESSERA_CHECK(inputs.size() == graph.inputs().size(), "evaluate_body: one tensor for each input");
  std::map<std::string, Tensor> named;
  for (size_t i = 0; i < inputs.size(); ++i) named.emplace(graph.value(graph.inputs()[i]).name, inputs[i]);
  TESSERA_ASSIGN(SymValues symbols, bind_symbols(graph, named, known));
  return evaluate(graph, named, std::move(symbols));
}

} // namespace tessera
