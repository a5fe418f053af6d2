#include "graph/ops/build.h"
#include <algorithm>

namespace tessera::ops {

// ---- inference
Status infer_same(InferContext& c) { return set_result(c, c.type(0).dtype, c.shape(0)); }

Status set_result(InferContext& c, DType dtype, SymShape shape, int result) {
  if (c.results.size() <= static_cast<size_t>(result)) c.results.resize(static_cast<size_t>(result) + 1);
  c.results[static_cast<size_t>(result)] = {dtype, std::move(shape)};
  return {};
}

Result<SymShape> broadcast_operands(InferContext& c) {
  SymShape shape;
  for (int i = 0; i < static_cast<int>(c.node.operands.size()); ++i) {
    if (!c.has(i)) continue;
    TESSERA_ASSIGN(shape, c.env().broadcast(shape, c.shape(i), c.node.location));
  }
  return shape;
}

InferFn infer_broadcast(int dtype_of) {
  return [dtype_of](InferContext& c) -> Status {
    TESSERA_ASSIGN(SymShape shape, broadcast_operands(c));
    return set_result(c, c.type(dtype_of).dtype, std::move(shape));
  };
}

InferFn infer_broadcast_as(DType dtype) {
  return [dtype](InferContext& c) -> Status {
    TESSERA_ASSIGN(SymShape shape, broadcast_operands(c));
    return set_result(c, dtype, std::move(shape));
  };
}

Result<Ints> normal_axes(const InferContext& c, const Ints& axes, int rank) {
  Ints out;
  out.reserve(axes.size());
  for (int64_t a : axes) {
    TESSERA_ASSIGN(int64_t n, c.axis(a, rank));
    out.push_back(n);
  }
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end())
    return c.error(ErrorCode::BadAttribute, "an axis is given twice in " + str(Attribute(axes)));
  return out;
}

SymShape reduced_shape(const SymShape& shape, const Ints& axes, bool keepdims) {
  SymShape out;
  for (size_t i = 0; i < shape.size(); ++i) {
    bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    if (!reduced)
      out.push_back(shape[i]);
    else if (keepdims)
      out.emplace_back(1);
  }
  return out;
}

// ---- index arithmetic
namespace {
// Both as one SymExpr, else nothing: then the scalar operator is used.
template <class F>
ScalarId fold(ScalarDag& d, ScalarOp op, ScalarId a, ScalarId b, F sym, bool condition = false) {
  auto x = d.as_sym(a), y = d.as_sym(b);
  if (x && y) {
    SymExpr e = sym(*x, *y);
    return condition ? d.condition(e) : d.index(e);
  }
  return d.op(op, a, b);
}
// A divisor of 0 stands in code that never runs (a tensor of no elements); SymExpr does not take it.
SymExpr divisor(const SymExpr& e) { return e.is_const(0) ? SymExpr(1) : e; }
} // namespace

ScalarId IndexMath::add(ScalarId a, ScalarId b) const {
  return fold(d, ScalarOp::Add, a, b, [](const SymExpr& x, const SymExpr& y) { return x + y; });
}
ScalarId IndexMath::sub(ScalarId a, ScalarId b) const {
  return fold(d, ScalarOp::Sub, a, b, [](const SymExpr& x, const SymExpr& y) { return x - y; });
}
ScalarId IndexMath::mul(ScalarId a, ScalarId b) const {
  return fold(d, ScalarOp::Mul, a, b, [](const SymExpr& x, const SymExpr& y) { return x * y; });
}
ScalarId IndexMath::div(ScalarId a, ScalarId b) const {
  return fold(d, ScalarOp::Div, a, b, [](const SymExpr& x, const SymExpr& y) { return floordiv(x, divisor(y)); });
}
ScalarId IndexMath::mod(ScalarId a, ScalarId b) const {
  return fold(d, ScalarOp::Mod, a, b, [](const SymExpr& x, const SymExpr& y) { return tessera::mod(x, divisor(y)); });
}
ScalarId IndexMath::min(ScalarId a, ScalarId b) const {
  return fold(d, ScalarOp::Min, a, b, [](const SymExpr& x, const SymExpr& y) { return sym_min(x, y); });
}
ScalarId IndexMath::max(ScalarId a, ScalarId b) const {
  return fold(d, ScalarOp::Max, a, b, [](const SymExpr& x, const SymExpr& y) { return sym_max(x, y); });
}
ScalarId IndexMath::lt(ScalarId a, ScalarId b) const {
  return fold(
      d, ScalarOp::Lt, a, b, [](const SymExpr& x, const SymExpr& y) { return sym_lt(x, y); }, true);
}
ScalarId IndexMath::le(ScalarId a, ScalarId b) const {
  return fold(
      d, ScalarOp::Le, a, b, [](const SymExpr& x, const SymExpr& y) { return sym_le(x, y); }, true);
}
ScalarId IndexMath::eq(ScalarId a, ScalarId b) const {
  return fold(
      d, ScalarOp::Eq, a, b, [](const SymExpr& x, const SymExpr& y) { return sym_eq(x, y); }, true);
}
ScalarId IndexMath::both(ScalarId a, ScalarId b) const {
  return fold(
      d, ScalarOp::And, a, b, [](const SymExpr& x, const SymExpr& y) { return sym_and(x, y); }, true);
}
ScalarId IndexMath::select(ScalarId c, ScalarId a, ScalarId b) const {
  auto s = d.as_sym(c), x = d.as_sym(a), y = d.as_sym(b);
  if (s && x && y) return d.index(sym_select(*s, *x, *y));
  return d.op(ScalarOp::Select, c, a, b);
}

// Dimensions of size 1 are left out of both: their index is 0.
ScalarId IndexMath::linear(std::span<const ScalarId> at, std::span<const SymExpr> shape) const {
  std::optional<ScalarId> r;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].is_const(1)) continue;
    r = r ? add(mul(*r, sym(shape[i])), at[i]) : at[i];
  }
  return r ? *r : sym(0);
}

std::vector<ScalarId> IndexMath::delinear(ScalarId position, std::span<const SymExpr> shape) const {
  std::vector<ScalarId> at(shape.size());
  size_t first = 0; // the outermost dimension that is not 1 takes what is left
  while (first < shape.size() && shape[first].is_const(1)) ++first;
  for (size_t k = shape.size(); k-- > 0;) {
    if (shape[k].is_const(1)) {
      at[k] = sym(0);
    } else if (k == first) {
      at[k] = position;
    } else {
      at[k] = mod(position, sym(shape[k]));
      position = div(position, sym(shape[k]));
    }
  }
  return at;
}

ScalarId load(ScalarDag& dag, const Graph& graph, const Node& node, int operand, std::vector<ScalarId> at,
              ScalarId predicate) {
  DType dtype = operand_type(graph, node, operand).dtype;
  ScalarId v = dag.load(operand, dtype, std::move(at), predicate);
  DType compute = compute_dtype(dtype);
  return dag[v].dtype == compute ? v : dag.cast(v, compute);
}

ScalarId load_index(ScalarDag& dag, const Graph& graph, const Node& node, int operand, std::vector<ScalarId> at,
                    const SymExpr& extent, bool from_end) {
  IndexMath m{dag};
  const std::vector<SymExpr> strides = contiguous_strides(operand_type(graph, node, operand).shape);
  ScalarNode check;
  check.op = ScalarOp::CheckBounds;
  check.dtype = DType::I64;
  check.operand = operand;
  check.masked = from_end;
  for (size_t d = 0; d < at.size(); ++d) {
    const auto index = dag.as_sym(at[d]);
    check.sym = index && !check.sym.is_const(-1) ? check.sym + *index * strides[d] : SymExpr(-1);
  }
  const ScalarId i = dag.cast(load(dag, graph, node, operand, std::move(at)), DType::I64), n = m.sym(extent);
  check.args = {from_end ? m.select(m.lt(i, m.sym(0)), m.add(i, n), i) : i, n};
  return dag.add(std::move(check));
}

OpDef composite(std::string_view name, std::string_view summary, std::vector<OperandDef> operands,
                DecomposeFn rewrite) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.onnx = {{name}};
  def.operands = std::move(operands);
  def.meaning = Decomposition{std::move(rewrite)};
  return def;
}

AttrDef number(std::string_view name, double fallback) { return {name, AttrKind::Float, false, fallback}; }
AttrDef integer(std::string_view name, int64_t fallback) { return {name, AttrKind::Int, false, fallback}; }

} // namespace tessera::ops
