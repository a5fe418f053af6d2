// Shape arithmetic without per-operator code: the meaning that fusion and codegen use, interpreted over SymExpr.
//
// A tensor whose elements are known as expressions over sizes (Shape yields them) goes through Gather, Concat, Mul,
// Where, ReduceProd ... by running the operator's own body, element by element, with SymExpr for numbers. Where both
// arguments are constant the dtype's exact arithmetic is used; where they are symbolic, i32 and i64 are taken to be
// wide enough for the product of sizes that the model computes in them.
#include "graph/infer/infer.h"
#include <algorithm>

namespace tessera {

namespace {

using Contents = std::vector<SymExpr>;
// An element: an expression, or nothing where it is not known.
using Element = std::optional<SymExpr>;

// Beyond this a body is too large to be worth interpreting (thousands of operands).
constexpr int kMaxNodes = 1 << 16;

bool followed(DType dtype) { return is_integer(dtype) || dtype == DType::Bool; }
bool symbolic(DType dtype) { return dtype == DType::I64 || dtype == DType::I32; }

class Interpreter {
public:
  Interpreter(const Graph& graph, const Node& node) : env_(graph.env()) {
    for (ValueId v : node.operands) {
      Operand o;
      if (v.valid()) {
        const Value& value = graph.value(v);
        o.contents = value.contents ? &*value.contents : nullptr;
        for (const SymExpr& d : value.type.shape) o.dims.push_back(d.as_const().value_or(-1));
      }
      operands_.push_back(std::move(o));
    }
  }

  const Dims& dims(int operand) const { return operands_[static_cast<size_t>(operand)].dims; }
  const Contents* contents(int operand) const { return operands_[static_cast<size_t>(operand)].contents; }

  // The element that `root` stands for. Values of nodes are kept: the DAG only grows. `flat(i)` gives the position in
  // operand i for loads without indices (pointwise bodies).
  Element evaluate(const ScalarDag& dag, ScalarId root, const std::function<int64_t(int)>& flat = {}) {
    for (auto id = static_cast<ScalarId>(values_.size()); id <= root; ++id)
      values_.push_back(node_value(dag, id, flat));
    return values_[static_cast<size_t>(root)];
  }
  void forget() { values_.clear(); }

  Element apply(ScalarOp op, DType result, DType argument, std::span<const SymExpr> a);

private:
  struct Operand {
    const Contents* contents = nullptr;
    Dims dims;
  };

  Element load(const ScalarNode& n, const std::function<int64_t(int)>& flat);
  Element node_value(const ScalarDag& dag, ScalarId id, const std::function<int64_t(int)>& flat);
  bool non_negative(const SymExpr& e) const { return env_.range(e).lo >= 0; }
  Element decided(const SymExpr& condition) const {
    if (condition.is_const()) return condition;
    if (auto known = env_.prove(condition)) return SymExpr(*known ? 1 : 0);
    return condition;
  }

  const ShapeEnv& env_;
  std::vector<Operand> operands_;
  std::vector<Element> values_;
};

Element Interpreter::load(const ScalarNode& n, const std::function<int64_t(int)>& flat) {
  if (n.operand < 0 || n.operand >= static_cast<int>(operands_.size())) return std::nullopt;
  const Operand& o = operands_[static_cast<size_t>(n.operand)];
  if (o.contents == nullptr) return std::nullopt;
  int64_t position = 0;
  if (flat) {
    position = flat(n.operand);
  } else {
    size_t rank = n.args.size() - (n.masked ? 1 : 0);
    if (n.masked) {
      const Element& predicate = values_[static_cast<size_t>(n.args.back())];
      if (!predicate || !predicate->is_const()) return std::nullopt;
      if (predicate->is_const(0)) return SymExpr(0);
    }
    if (rank != o.dims.size()) return std::nullopt;
    for (size_t d = 0; d < rank; ++d) {
      const Element& at = values_[static_cast<size_t>(n.args[d])];
      auto i = at ? at->as_const() : std::nullopt;
      if (!i || *i < 0 || *i >= o.dims[d]) return std::nullopt; // a branch that is not taken may look outside
      position = position * o.dims[d] + *i;
    }
  }
  if (position < 0 || position >= static_cast<int64_t>(o.contents->size())) return std::nullopt;
  return (*o.contents)[static_cast<size_t>(position)];
}

Element Interpreter::node_value(const ScalarDag& dag, ScalarId id, const std::function<int64_t(int)>& flat) {
  const ScalarNode& n = dag[id];
  auto value = [&](size_t i) -> const Element& { return values_[static_cast<size_t>(n.args[i])]; };
  switch (n.op) {
  case ScalarOp::Const: return followed(n.dtype) ? Element(SymExpr(n.i)) : std::nullopt;
  case ScalarOp::Index: return env_.simplify(n.sym);
  case ScalarOp::Load: return load(n, flat);
  case ScalarOp::CheckBounds: {
    const Element &i = value(0), &extent = value(1);
    if (!i || !extent || !i->is_const() || !extent->is_const()) return std::nullopt;
    if (i->const_value() < 0 || i->const_value() >= extent->const_value()) return std::nullopt;
    return i;
  }
  case ScalarOp::Reduce: return std::nullopt;
  case ScalarOp::Select: {
    if (!value(0)) return std::nullopt;
    Element c = decided(*value(0));
    if (c->is_const()) return c->is_const(0) ? value(2) : value(1);
    if (!value(1) || !value(2)) return std::nullopt;
    return env_.simplify(sym_select(*c, *value(1), *value(2)));
  }
  default: break;
  }
  SymExpr args[3];
  for (size_t i = 0; i < n.args.size(); ++i) {
    if (!value(i)) return std::nullopt;
    args[i] = *value(i);
  }
  return apply(n.op, n.dtype, dag[n.args[0]].dtype, std::span(args, n.args.size()));
}

Element Interpreter::apply(ScalarOp op, DType result, DType argument, std::span<const SymExpr> a) {
  if (!followed(result) || !followed(argument)) return std::nullopt;
  if (std::all_of(a.begin(), a.end(), [](const SymExpr& e) { return e.is_const(); })) {
    ScalarValue values[3];
    for (size_t i = 0; i < a.size(); ++i) values[i].i = a[i].const_value();
    return SymExpr(eval_scalar(op, result, argument, std::span(values, a.size())).i);
  }
  if (argument != DType::Bool && !symbolic(argument)) return std::nullopt;
  if (result != DType::Bool && !symbolic(result)) return std::nullopt;
  switch (op) {
  case ScalarOp::Eq: return decided(sym_eq(a[0], a[1]));
  case ScalarOp::Ne: return decided(sym_ne(a[0], a[1]));
  case ScalarOp::Lt: return decided(sym_lt(a[0], a[1]));
  case ScalarOp::Le: return decided(sym_le(a[0], a[1]));
  case ScalarOp::Gt: return decided(sym_lt(a[1], a[0]));
  case ScalarOp::Ge: return decided(sym_le(a[1], a[0]));
  case ScalarOp::Cast:
    return result == DType::Bool && argument != DType::Bool ? decided(sym_ne(a[0], 0)) : Element(a[0]);
  default: break;
  }
  if (argument == DType::Bool) {
    switch (op) {
    case ScalarOp::Not: return sym_not(a[0]);
    case ScalarOp::And: return decided(sym_and(a[0], a[1]));
    case ScalarOp::Or: return decided(sym_or(a[0], a[1]));
    case ScalarOp::Xor: return decided(sym_ne(a[0], a[1]));
    default: return std::nullopt;
    }
  }
  switch (op) {
  case ScalarOp::Neg: return -a[0];
  case ScalarOp::Abs: return non_negative(a[0]) ? a[0] : sym_max(a[0], -a[0]);
  case ScalarOp::Sign: return env_.range(a[0]).lo >= 1 ? Element(SymExpr(1)) : std::nullopt;
  case ScalarOp::Floor:
  case ScalarOp::Ceil:
  case ScalarOp::Round:
  case ScalarOp::Trunc: return a[0];
  case ScalarOp::Add: return a[0] + a[1];
  case ScalarOp::Sub: return a[0] - a[1];
  case ScalarOp::Mul: return a[0] * a[1];
  case ScalarOp::Fma: return a[0] * a[1] + a[2];
  case ScalarOp::Div: // truncating: the floor where nothing is negative. A size of 0 as divisor is an error when
                      // evaluated.
    if (a[1].is_const(0)) return SymExpr(0);
    if (non_negative(a[0]) && non_negative(a[1])) return env_.simplify(floordiv(a[0], a[1]));
    return std::nullopt;
  case ScalarOp::Mod:
    if (a[1].is_const(0)) return SymExpr(0);
    return env_.simplify(mod(a[0], a[1]));
  case ScalarOp::Fmod:
    if (a[1].is_const(0)) return SymExpr(0);
    if (non_negative(a[0]) && non_negative(a[1])) return env_.simplify(mod(a[0], a[1]));
    return std::nullopt;
  case ScalarOp::Min: return env_.simplify(sym_min(a[0], a[1]));
  case ScalarOp::Max: return env_.simplify(sym_max(a[0], a[1]));
  case ScalarOp::Pow:
    if (auto e = a[1].as_const(); e && *e >= 0 && *e <= 4) {
      SymExpr power = 1;
      for (int64_t i = 0; i < *e; ++i) power *= a[0];
      return power;
    }
    return std::nullopt;
  default: return std::nullopt;
  }
}

// Positions of a concrete row-major shape, one after another.
bool next_position(Dims& at, const Dims& dims) {
  for (size_t d = dims.size(); d-- > 0;) {
    if (++at[d] < dims[d]) return true;
    at[d] = 0;
  }
  return false;
}

std::optional<Contents> pointwise_contents(const Graph& graph, const Node& node, Interpreter& run, const Dims& dims,
                                           int64_t count) {
  ScalarDag dag;
  auto body = build_pointwise(graph, node, dag, [](int) { return std::vector<ScalarId>(); });
  if (!body.ok()) return std::nullopt;
  Contents out;
  Dims at(dims.size(), 0);
  // Broadcasting: dimensions count from the last; one of size 1 stands still.
  auto flat = [&](int operand) {
    const Dims& od = run.dims(operand);
    int64_t position = 0;
    for (size_t d = 0; d < od.size(); ++d)
      position = position * od[d] + (od[d] == 1 ? 0 : at[dims.size() - od.size() + d]);
    return position;
  };
  for (int64_t i = 0; i < count; ++i, next_position(at, dims)) {
    run.forget();
    Element e = run.evaluate(dag, *body, flat);
    if (!e) return std::nullopt;
    out.push_back(*e);
  }
  return out;
}

std::optional<Contents> indexing_contents(const Graph& graph, const Node& node, Interpreter& run, int result,
                                          const Dims& dims, int64_t count) {
  ScalarDag dag;
  Contents out;
  Dims at(dims.size(), 0);
  std::vector<ScalarId> index(dims.size());
  for (int64_t i = 0; i < count; ++i, next_position(at, dims)) {
    for (size_t d = 0; d < dims.size(); ++d) index[d] = dag.constant_i(DType::I64, at[d]);
    auto body = node.op->indexing()->body(dag, result, index, node, graph);
    if (!body.ok() || dag.size() > kMaxNodes) return std::nullopt;
    Element e = run.evaluate(dag, *body);
    if (!e) return std::nullopt;
    out.push_back(*e);
  }
  return out;
}

std::optional<Contents> reduction_contents(const Graph& graph, const Node& node, Interpreter& run, int64_t count) {
  static constexpr std::pair<ReduceKind, ScalarOp> kSteps[] = {
      {ReduceKind::Sum, ScalarOp::Add}, {ReduceKind::Prod, ScalarOp::Mul}, {ReduceKind::Max, ScalarOp::Max},
      {ReduceKind::Min, ScalarOp::Min}, {ReduceKind::Any, ScalarOp::Or},   {ReduceKind::All, ScalarOp::And}};
  ReduceKind kind = node.op->reduction()->kind;
  auto step = std::find_if(std::begin(kSteps), std::end(kSteps), [&](const auto& row) { return row.first == kind; });
  const Contents* x = run.contents(0);
  if (step == std::end(kSteps) || x == nullptr) return std::nullopt;
  const Dims& dims = run.dims(0);
  DType dtype = graph.type(node.operands[0]).dtype;
  std::vector<bool> reduced(dims.size(), !node.attributes.has("axes"));
  for (int64_t a : node.attributes.ints("axes")) reduced[static_cast<size_t>(a)] = true;
  Contents out(static_cast<size_t>(count), SymExpr(reduce_identity_i64(kind, dtype)));
  std::vector<bool> started(static_cast<size_t>(count), false);
  Dims at(dims.size(), 0);
  for (const SymExpr& element : *x) {
    int64_t position = 0;
    for (size_t d = 0; d < dims.size(); ++d)
      if (!reduced[d]) position = position * dims[d] + at[d];
    auto p = static_cast<size_t>(position);
    if (started[p]) {
      SymExpr args[2] = {out[p], element};
      Element folded = run.apply(step->second, dtype, dtype, args);
      if (!folded) return std::nullopt;
      out[p] = *folded;
    } else {
      out[p] = element;
      started[p] = true;
    }
    next_position(at, dims);
  }
  return out;
}

} // namespace

std::optional<Contents> infer_contents(const Graph& graph, const Node& node, const TensorType& result,
                                       int result_index) {
  if (!followed(result.dtype)) return std::nullopt;
  const OpDef& op = *node.op;
  if (!op.pointwise() && !op.indexing() && !op.reduction()) return std::nullopt;
  int64_t count = 1;
  Dims dims;
  for (const SymExpr& d : result.shape) {
    auto size = d.as_const();
    if (!size || *size < 0 || *size > kContentsLimit) return std::nullopt;
    count *= *size;
    if (count > kContentsLimit) return std::nullopt;
    dims.push_back(*size);
  }
  for (ValueId v : node.operands)
    if (v.valid() && !graph.value(v).contents) return std::nullopt;
  Interpreter run(graph, node);
  if (op.pointwise()) return pointwise_contents(graph, node, run, dims, count);
  if (op.indexing()) return indexing_contents(graph, node, run, result_index, dims, count);
  return reduction_contents(graph, node, run, count);
}

} // namespace tessera
