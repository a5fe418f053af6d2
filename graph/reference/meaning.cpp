#include "graph/reference/meaning.h"
#include "graph/ir/bodies.h"
#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

ScalarValue element(const Tensor& t, int64_t i) {
  ScalarValue v;
  if (is_float(t.dtype()))
    v.f = t.get_f64(i);
  else
    v.i = t.get_i64(i);
  return v;
}

void store(Tensor& t, int64_t i, ScalarValue v, DType from) {
  v = eval_scalar(ScalarOp::Cast, t.dtype(), from, std::span(&v, 1));
  if (is_float(t.dtype()))
    t.set_f64(i, v.f);
  else
    t.set_i64(i, v.i);
}

bool next_position(Dims& at, const Dims& dims) {
  for (size_t d = dims.size(); d-- > 0;) {
    if (++at[d] < dims[d]) return true;
    at[d] = 0;
  }
  return false;
}

// Evaluates a DAG at one point after another. Axis symbols are bound in `symbols` by the caller.
class Point {
public:
  Point(const ScalarDag& dag, const std::vector<Tensor>& operands, SymValues& symbols)
      : dag_(dag), operands_(operands), symbols_(symbols), values_(static_cast<size_t>(dag.size())) {}

  Result<ScalarValue> run(ScalarId root) {
    // Forwards, not lazily: a branch that Select does not take may not fail, so loads outside of an operand there are
    // noted and only count when the root needs them.
    outside_.assign(values_.size(), false);
    for (ScalarId id = 0; id <= root; ++id) TESSERA_TRY(step(id));
    if (outside_[static_cast<size_t>(root)])
      return Diagnostic(ErrorCode::BadInput, "an index is outside of its operand");
    return values_[static_cast<size_t>(root)];
  }

private:
  Status step(ScalarId id) {
    const ScalarNode& n = dag_[id];
    auto slot = static_cast<size_t>(id);
    auto arg = [&](size_t i) { return static_cast<size_t>(n.args[i]); };
    if (n.op == ScalarOp::Const) {
      values_[slot] = {n.f, n.i};
      return {};
    }
    if (n.op == ScalarOp::Index) {
      TESSERA_ASSIGN(int64_t value, n.sym.eval(symbols_));
      values_[slot] = {0, value};
      return {};
    }
    if (n.op == ScalarOp::Select) {
      size_t chosen = values_[arg(0)].i != 0 ? arg(1) : arg(2);
      outside_[slot] = outside_[arg(0)] || outside_[chosen];
      values_[slot] = values_[chosen];
      return {};
    }
    if (n.op == ScalarOp::Load) return load(n, slot);
    for (size_t i = 0; i < n.args.size(); ++i) outside_[slot] = outside_[slot] || outside_[arg(i)];
    if (n.op == ScalarOp::CheckBounds) {
      int64_t i = values_[arg(0)].i, extent = values_[arg(1)].i;
      bool inside = i >= 0 && i < extent;
      outside_[slot] = outside_[slot] || !inside;
      values_[slot] = {0, inside ? i : 0};
      return {};
    }
    if (n.op == ScalarOp::Reduce) return Diagnostic(ErrorCode::UnsupportedFeature, "a body with a reduction inside");
    ScalarValue args[3];
    for (size_t i = 0; i < n.args.size(); ++i) args[i] = values_[arg(i)];
    values_[slot] = eval_scalar(n.op, n.dtype, dag_[n.args[0]].dtype, std::span(args, n.args.size()));
    return {};
  }

  Status load(const ScalarNode& n, size_t slot) {
    size_t rank = n.args.size() - (n.masked ? 1 : 0);
    if (n.masked) {
      auto predicate = static_cast<size_t>(n.args.back());
      if (outside_[predicate] || values_[predicate].i == 0) {
        outside_[slot] = outside_[predicate];
        values_[slot] = {};
        return {};
      }
    }
    if (n.operand < 0 || n.operand >= static_cast<int>(operands_.size()))
      return Diagnostic(ErrorCode::Internal,
                        "the body loads operand " + std::to_string(n.operand) + ", which is not there");
    const Tensor& t = operands_[static_cast<size_t>(n.operand)];
    if (rank != t.dims().size())
      return Diagnostic(ErrorCode::Internal, "the body loads an operand of rank " + std::to_string(t.dims().size()) +
                                                 " with " + std::to_string(rank) + " indices");
    int64_t position = 0;
    bool inside = true;
    for (size_t d = 0; d < rank; ++d) {
      auto a = static_cast<size_t>(n.args[d]);
      int64_t i = values_[a].i;
      inside &= !outside_[a] && i >= 0 && i < t.dims()[d];
      if (inside) position = position * t.dims()[d] + i;
    }
    outside_[slot] = !inside;
    values_[slot] = inside ? element(t, position) : ScalarValue{};
    return {};
  }

  const ScalarDag& dag_;
  const std::vector<Tensor>& operands_;
  SymValues& symbols_;
  std::vector<ScalarValue> values_;
  std::vector<bool> outside_;
};

struct Axes {
  std::vector<SymExpr> symbols;
  explicit Axes(size_t rank) {
    for (size_t d = 0; d < rank; ++d) symbols.push_back(SymExpr::symbol("i" + std::to_string(d)));
  }
  void bind(const Dims& at, SymValues& values) const {
    for (size_t d = 0; d < at.size(); ++d) values[symbols[d].symbol_id()] = at[d];
  }
};

Status fill(const ScalarDag& dag, ScalarId root, const Axes& axes, const std::vector<Tensor>& operands,
            SymValues& values, Tensor& result) {
  Point point(dag, operands, values);
  Dims at(result.dims().size(), 0);
  for (int64_t i = 0; i < result.count(); ++i, next_position(at, result.dims())) {
    axes.bind(at, values);
    TESSERA_ASSIGN(ScalarValue v, point.run(root));
    store(result, i, v, dag[root].dtype);
  }
  return {};
}

Result<Tensor> pointwise(const Graph& graph, const Node& node, const std::vector<Tensor>& operands, SymValues& values) {
  Dims dims;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (!node.operands[i].valid()) continue;
    const Dims& od = operands[i].dims();
    if (od.size() > dims.size()) dims.insert(dims.begin(), od.size() - dims.size(), 1);
    for (size_t d = 0; d < od.size(); ++d) {
      int64_t& size = dims[dims.size() - od.size() + d];
      if (size == 1)
        size = od[d];
      else if (od[d] != 1 && od[d] != size)
        return Diagnostic(ErrorCode::BadInput, "operands cannot be broadcast");
    }
  }
  Axes axes(dims.size());
  ScalarDag dag;
  auto at = [&](int operand) {
    const Dims& od = operands[static_cast<size_t>(operand)].dims();
    std::vector<ScalarId> index;
    for (size_t d = 0; d < od.size(); ++d)
      index.push_back(dag.index(od[d] == 1 ? SymExpr(0) : axes.symbols[dims.size() - od.size() + d]));
    return index;
  };
  TESSERA_ASSIGN(ScalarId root, build_pointwise(graph, node, dag, at));
  TESSERA_ASSIGN(Tensor result, Tensor::create(graph.type(node.results[0]).dtype, dims));
  TESSERA_TRY(fill(dag, root, axes, operands, values, result));
  return result;
}

Result<Tensor> indexing(const Graph& graph, const Node& node, const std::vector<Tensor>& operands, SymValues& values,
                        size_t r) {
  const TensorType& type = graph.type(node.results[r]);
  Dims dims;
  for (const SymExpr& e : type.shape) {
    TESSERA_ASSIGN(int64_t size, graph.env().simplify(e).eval(values));
    dims.push_back(size);
  }
  Axes axes(dims.size());
  ScalarDag dag;
  std::vector<ScalarId> at;
  for (const SymExpr& s : axes.symbols) at.push_back(dag.index(s));
  TESSERA_ASSIGN(ScalarId root, node.op->indexing()->body(dag, static_cast<int>(r), at, node, graph));
  TESSERA_ASSIGN(Tensor result, Tensor::create(type.dtype, dims));
  TESSERA_TRY(fill(dag, root, axes, operands, values, result));
  return result;
}

// Folds in the compute dtype, in row-major order.
Result<Tensor> reduction(const Graph& graph, const Node& node, const Tensor& x) {
  ReduceKind kind = node.op->reduction()->kind;
  bool arg = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin, last = node.attributes.i("select_last") != 0;
  bool keep = node.attributes.i("keepdims") != 0;
  std::vector<bool> reduced(x.dims().size(), !node.attributes.has("axes"));
  for (int64_t a : node.attributes.ints("axes")) reduced[static_cast<size_t>(a)] = true;
  Dims dims;
  for (size_t d = 0; d < reduced.size(); ++d)
    if (!reduced[d] || keep) dims.push_back(reduced[d] ? 1 : x.dims()[d]);
  TESSERA_ASSIGN(Tensor result, Tensor::create(graph.type(node.results[0]).dtype, dims));
  DType compute = compute_dtype(x.dtype());
  std::vector<ScalarValue> folded(static_cast<size_t>(result.count()));
  std::vector<int64_t> where(folded.size(), 0), seen(folded.size(), 0);
  if (!arg)
    for (auto& v : folded)
      v = is_float(compute) ? ScalarValue{reduce_identity_f64(kind, compute), 0}
                            : ScalarValue{0, reduce_identity_i64(kind, compute)};
  Dims at(x.dims().size(), 0);
  for (int64_t i = 0; i < x.count(); ++i, next_position(at, x.dims())) {
    int64_t position = 0;
    for (size_t d = 0; d < at.size(); ++d)
      if (!reduced[d]) position = position * x.dims()[d] + at[d];
    auto p = static_cast<size_t>(position);
    ScalarValue pair[2] = {folded[p], element(x, i)};
    int64_t rank = seen[p]++;
    auto fold = [&](ScalarOp op, DType result_dtype) { return eval_scalar(op, result_dtype, compute, pair); };
    switch (kind) {
    case ReduceKind::Sum: folded[p] = fold(ScalarOp::Add, compute); break;
    case ReduceKind::Prod: folded[p] = fold(ScalarOp::Mul, compute); break;
    case ReduceKind::Max: folded[p] = fold(ScalarOp::Max, compute); break;
    case ReduceKind::Min: folded[p] = fold(ScalarOp::Min, compute); break;
    case ReduceKind::Any: folded[p] = fold(ScalarOp::Or, compute); break;
    case ReduceKind::All: folded[p] = fold(ScalarOp::And, compute); break;
    case ReduceKind::ArgMax:
    case ReduceKind::ArgMin: {
      bool old_nan = is_float(compute) && std::isnan(pair[0].f), new_nan = is_float(compute) && std::isnan(pair[1].f);
      bool better = new_nan && !old_nan, equal = new_nan && old_nan;
      if (!new_nan && !old_nan) {
        better =
            eval_scalar(kind == ReduceKind::ArgMax ? ScalarOp::Lt : ScalarOp::Gt, DType::Bool, compute, pair).i != 0;
        equal = eval_scalar(ScalarOp::Eq, DType::Bool, compute, pair).i != 0;
      }
      if (rank == 0 || better || (equal && last)) {
        folded[p] = pair[1];
        where[p] = rank;
      }
      break;
    }
    }
  }
  for (int64_t i = 0; i < result.count(); ++i) {
    auto p = static_cast<size_t>(i);
    if (arg)
      store(result, i, {0, where[p]}, DType::I64);
    else
      store(result, i, folded[p], compute);
  }
  return result;
}

bool scalar_dtype(DType d) { return info(d).kind != DTypeKind::Held && info(d).kind != DTypeKind::Complex; }

} // namespace

Result<std::vector<Tensor>> evaluate_meaning(const Graph& graph, const Node& node, const std::vector<Tensor>& operands,
                                             const SymValues& symbols) {
  const OpDef& op = *node.op;
  if (!op.pointwise() && !op.indexing() && !op.reduction())
    return Diagnostic(ErrorCode::UnsupportedFeature, node.location,
                      "'" + std::string(op.name) + "' has no scalar meaning");
  for (ValueId v : node.operands)
    if (v.valid() && !scalar_dtype(graph.type(v).dtype))
      return Diagnostic(ErrorCode::UnsupportedType, node.location,
                        "scalar bodies do not work on " + graph.type(v).str());
  SymValues values = symbols;
  std::vector<Tensor> results;
  for (size_t r = 0; r < node.results.size(); ++r) {
    if (!node.results[r].valid()) {
      results.emplace_back();
      continue;
    }
    auto result = op.pointwise()  ? pointwise(graph, node, operands, values)
                  : op.indexing() ? indexing(graph, node, operands, values, r)
                                  : reduction(graph, node, operands[0]);
    if (!result.ok()) return std::move(result).take_error().at(node.location);
    results.push_back(std::move(result).value());
  }
  return results;
}

} // namespace tessera
