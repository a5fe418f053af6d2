// Inference of one node: what the record demands is checked, what it does not spell out is derived from its meaning.
#include "graph/infer/infer.h"
#include "graph/ir/sizes.h"
#include <algorithm>

namespace tessera {

namespace {

std::string plural(size_t n, const char* noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

const OperandDef& operand_def(const OpDef& op, size_t i) { return op.operands[std::min(i, op.operands.size() - 1)]; }

Status check_operands(const InferContext& c) {
  const OpDef& op = *c.node.op;
  size_t given = c.node.operands.size(), least = 0, most = op.operands.size();
  bool variadic = !op.operands.empty() && op.operands.back().variadic;
  for (size_t i = 0; i < op.operands.size(); ++i)
    if (!op.operands[i].optional && !op.operands[i].variadic) least = i + 1;
  std::string called = "'" + std::string(op.name) + "'";
  if (given < least || (given > most && !variadic)) {
    std::string wants = variadic        ? "at least " + plural(least, "operand")
                        : least == most ? plural(most, "operand")
                                        : std::to_string(least) + " to " + plural(most, "operand");
    return c.error(ErrorCode::MalformedModel, called + " takes " + wants + ", not " + std::to_string(given));
  }
  int first = -1;
  for (size_t i = 0; i < given; ++i) {
    const OperandDef& def = operand_def(op, i);
    std::string label =
        "operand '" + std::string(def.name) + "'" + (def.variadic ? " " + std::to_string(i) : "") + " of " + called;
    if (!c.has(static_cast<int>(i))) {
      if (!def.optional) return c.error(ErrorCode::MalformedModel, label + " is missing");
      continue;
    }
    DType dtype = c.type(static_cast<int>(i)).dtype;
    if (first < 0) first = static_cast<int>(i);
    if (!admits(def.types, dtype)) // strings are a matter of what is built, not of a broken model
      return c.error(dtype == DType::String ? ErrorCode::UnsupportedType : ErrorCode::TypeMismatch,
                     label + " must be " + std::string(summary(def.types)) + ", not " + std::string(name(dtype)));
    if (dtype == DType::List && op.indexing())
      return c.error(ErrorCode::TypeMismatch, label + " must be a tensor, not " + c.type(static_cast<int>(i)).str());
    if (def.types == TypeSet::SameAsFirst && dtype != c.type(first).dtype)
      return c.error(ErrorCode::TypeMismatch, label + " must be " + std::string(summary(def.types)) + " (" +
                                                  std::string(name(c.type(first).dtype)) + "), not " +
                                                  std::string(name(dtype)));
  }
  if (c.result_count < op.min_results || c.result_count > op.max_results) {
    std::string yields = op.min_results == op.max_results ? plural(static_cast<size_t>(op.max_results), "result")
                                                          : std::to_string(op.min_results) + " to " +
                                                                plural(static_cast<size_t>(op.max_results), "result");
    return c.error(ErrorCode::MalformedModel, called + " yields " + yields + ", not " + std::to_string(c.result_count));
  }
  return {};
}

// A record's body that mixes dtypes would be evaluated differently by different interpretations.
Status check_body(const InferContext& c, const ScalarDag& dag) {
  for (ScalarId id = 0; id < dag.size(); ++id) {
    const ScalarNode& n = dag[id];
    if (n.op == ScalarOp::Load || info(n.op).arity < 2) continue;
    size_t from = n.op == ScalarOp::Select ? 1 : 0;
    if (n.op == ScalarOp::Select && dag[n.args[0]].dtype != DType::Bool)
      return c.error(ErrorCode::TypeMismatch, "condition of '" + std::string(c.node.op->name) + "' is not bool");
    for (size_t i = from + 1; i < n.args.size(); ++i) {
      DType a = dag[n.args[from]].dtype, b = dag[n.args[i]].dtype;
      if (a != b)
        return c.error(ErrorCode::TypeMismatch, "operands of '" + std::string(c.node.op->name) +
                                                    "' must have one dtype, not " + std::string(name(a)) + " and " +
                                                    std::string(name(b)));
    }
  }
  return {};
}

Status infer_pointwise(InferContext& c) {
  SymShape shape;
  std::vector<DType> dtypes;
  bool first = true;
  for (size_t i = 0; i < c.node.operands.size(); ++i) {
    if (!c.node.operands[i].valid()) continue;
    const TensorType& type = c.type(static_cast<int>(i));
    dtypes.push_back(type.dtype);
    if (first) {
      shape = type.shape;
      first = false;
    } else if (shape != type.shape) {
      TESSERA_ASSIGN(shape, c.env().broadcast(shape, type.shape, c.node.location));
    }
  }
  ScalarDag dag;
  TESSERA_ASSIGN(ScalarId body, build_pointwise(c.graph, c.node, dag, [](int) { return std::vector<ScalarId>(); }));
  TESSERA_TRY(check_body(c, dag));
  c.results[0] = {pointwise_dtype(dag[body].dtype, dtypes), std::move(shape)};
  return {};
}

Status infer_reduction(InferContext& c) {
  const TensorType& type = c.type(0);
  const Attribute* attribute = c.node.attributes.find("axes");
  Ints axes = c.node.attributes.ints("axes");
  if (attribute == nullptr)
    for (int64_t a = 0; a < type.rank(); ++a) axes.push_back(a);
  bool keep = c.node.attributes.i("keepdims") != 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    TESSERA_ASSIGN(int64_t axis, c.axis(axes[i], type.rank()));
    if (axis != axes[i] || (i > 0 && axes[i - 1] >= axes[i]))
      return c.error(ErrorCode::BadAttribute,
                     "axes of '" + std::string(c.node.op->name) + "' must be non-negative, sorted and distinct");
  }
  ReduceKind kind = c.node.op->reduction()->kind;
  bool arg = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin;
  bool logical = kind == ReduceKind::Any || kind == ReduceKind::All;
  SymShape shape;
  size_t next = 0;
  for (size_t d = 0; d < type.shape.size(); ++d) {
    if (next < axes.size() && axes[next] == static_cast<int64_t>(d)) {
      ++next;
      if (arg && type.shape[d].is_const(0))
        return c.error(ErrorCode::ShapeMismatch, "'" + std::string(c.node.op->name) + "' over dimension " +
                                                     std::to_string(d) + ", which is empty, has no result");
      if (keep) shape.emplace_back(1);
    } else {
      shape.push_back(type.shape[d]);
    }
  }
  c.results[0] = {arg ? DType::I64 : logical ? DType::Bool : type.dtype, std::move(shape)};
  return {};
}

Status infer_constant(InferContext& c) {
  const Tensor* tensor = c.node.attributes.get<Tensor>("value");
  if (tensor == nullptr) return c.error(ErrorCode::BadAttribute, "attribute 'value' of 'constant' is missing");
  c.results[0] = type_of(*tensor);
  bool integral = is_integer(tensor->dtype()) || tensor->dtype() == DType::Bool;
  if (integral && has_data(*tensor) && tensor->count() <= kContentsLimit) {
    std::vector<SymExpr> contents;
    contents.reserve(static_cast<size_t>(tensor->count()));
    for (int64_t i = 0; i < tensor->count(); ++i) contents.emplace_back(tensor->get_i64(i));
    c.contents[0] = std::move(contents);
  }
  return {};
}

// A composite's types are those of what it decomposes into.
Status infer_composite(InferContext& c) {
  static thread_local int depth = 0;
  struct Enter {
    Enter() { ++depth; }
    ~Enter() { --depth; }
  } enter;
  if (depth > 32)
    return c.error(ErrorCode::Internal, "the decomposition of '" + std::string(c.node.op->name) + "' does not end");
  Node copy;
  Graph scratch = scratch_graph(c.graph, c.node, copy);
  TESSERA_ASSIGN(auto values, std::get<Decomposition>(c.node.op->meaning).rewrite(scratch, copy, c.result_count));
  if (static_cast<int>(values.size()) < c.result_count)
    return c.error(ErrorCode::Internal,
                   "the decomposition of '" + std::string(c.node.op->name) + "' yields too few results");
  for (int i = 0; i < scratch.node_count(); ++i) {
    const Node& n = scratch.node(NodeId{i});
    if (!n.op->structured() || n.op->structured()->kind != Structured::Read) continue;
    for (size_t k = 0; k < copy.operands.size(); ++k) {
      if (!copy.operands[k].valid() || !reads(scratch, n, copy.operands[k])) continue;
      c.reads.push_back({static_cast<int>(k), {}});
      for (const DefinedSize& d : defined_sizes(scratch, n)) c.reads.back().symbols.push_back(d.symbol);
    }
  }
  for (size_t r = 0; r < c.results.size(); ++r) {
    if (!values[r].valid())
      return c.error(ErrorCode::UnsupportedFeature, "result " + std::to_string(r) + " of '" +
                                                        std::string(c.node.op->name) +
                                                        "' is not available with these attributes");
    c.results[r] = scratch.type(values[r]);
    c.contents[r] = scratch.value(values[r]).contents;
  }
  return {};
}

// Constant dimensions must be sizes: not negative, and of a product that an address space can hold.
Status check_result(const InferContext& c, size_t r) {
  double count = 1;
  bool empty = false;
  for (const SymExpr& dim : c.results[r].shape) {
    auto value = dim.as_const();
    if (!value) continue;
    if (*value < 0)
      return c.error(ErrorCode::ShapeMismatch, "result " + std::to_string(r) + " of '" + std::string(c.node.op->name) +
                                                   "' would have a negative dimension: " + c.results[r].str());
    empty |= *value == 0;
    count *= static_cast<double>(*value);
  }
  if (!empty && count > 4.0e18)
    return c.error(ErrorCode::SizeOverflow, "result " + std::to_string(r) + " of '" + std::string(c.node.op->name) +
                                                "' is larger than any memory: " + c.results[r].str());
  return {};
}

} // namespace

Status infer_node(InferContext& c) {
  TESSERA_TRY(check_operands(c));
  const OpDef& op = *c.node.op;
  c.results.resize(static_cast<size_t>(c.result_count));
  c.contents.resize(static_cast<size_t>(c.result_count));
  if (op.infer)
    TESSERA_TRY(op.infer(c));
  else if (op.pointwise())
    TESSERA_TRY(infer_pointwise(c));
  else if (op.reduction())
    TESSERA_TRY(infer_reduction(c));
  else if (op.is_composite())
    TESSERA_TRY(infer_composite(c));
  else if (op.structured() && op.structured()->kind == Structured::Constant)
    TESSERA_TRY(infer_constant(c));
  else
    return c.error(ErrorCode::Internal, "the record of '" + std::string(op.name) + "' has no inference");
  TESSERA_CHECK(static_cast<int>(c.results.size()) >= c.result_count,
                "inference of '" + std::string(op.name) + "' lost results");
  c.contents.resize(c.results.size()); // records say the types of results that the node leaves out, too
  for (size_t r = 0; r < c.results.size(); ++r) {
    TESSERA_TRY(check_result(c, r));
    bool stands =
        r < c.node.results.size() && c.node.results[r].valid(); // bodies query the types of the node's results
    if (!c.contents[r] && stands) c.contents[r] = infer_contents(c.graph, c.node, c.results[r], static_cast<int>(r));
  }
  return {};
}

} // namespace tessera
