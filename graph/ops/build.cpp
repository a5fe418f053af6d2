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

// ---- builder
B::~B() = default;
B::B(Graph& graph, const Node& node) : graph_(graph), node_(node) {}

bool B::has(int operand) const { return operand < operands() && node_.operands[static_cast<size_t>(operand)].valid(); }
ValueId B::in(int operand) const { return has(operand) ? node_.operands[static_cast<size_t>(operand)] : ValueId{}; }
TensorType B::type(ValueId v) const { return v.valid() ? graph_.type(v) : TensorType{}; }

SymExpr B::dim(ValueId v, int64_t axis) const {
  if (!v.valid()) return 1;
  const SymShape& shape = graph_.type(v).shape;
  return axis >= 0 && axis < static_cast<int64_t>(shape.size()) ? shape[static_cast<size_t>(axis)] : SymExpr(1);
}

void B::fail(Diagnostic d) {
  if (!error_) error_ = std::move(d).at(node_.location);
}
void B::fail(ErrorCode code, std::string message) { fail(Diagnostic(code, node_.location, std::move(message))); }

std::vector<SymExpr> B::known(int operand) {
  InferContext c{graph_, node_, 1, {}, {}};
  auto r = c.known(operand);
  if (!r.ok()) return fail(std::move(r).take_error()), std::vector<SymExpr>{};
  return std::move(r).value();
}

Ints B::known_ints(int operand) {
  InferContext c{graph_, node_, 1, {}, {}};
  auto r = c.known_ints(operand);
  if (!r.ok()) return fail(std::move(r).take_error()), Ints{};
  return std::move(r).value();
}

int64_t B::axis(int64_t a, int rank) {
  InferContext c{graph_, node_, 1, {}, {}};
  auto r = c.axis(a, rank);
  if (!r.ok()) return fail(std::move(r).take_error()), 0;
  return *r;
}

Ints B::axes(const Ints& axes, int rank) {
  InferContext c{graph_, node_, 1, {}, {}};
  auto r = normal_axes(c, axes, rank);
  if (!r.ok()) return fail(std::move(r).take_error()), Ints{};
  return std::move(r).value();
}

Result<std::vector<ValueId>> B::done(std::vector<ValueId> vs) {
  if (error_) return *error_;
  return vs;
}

ValueId B::op(std::string_view name, std::vector<ValueId> operands, Attributes attributes) {
  return ops(name, std::move(operands), std::move(attributes), 1)[0];
}

std::vector<ValueId> B::ops(std::string_view name, std::vector<ValueId> operands, Attributes attributes, int count) {
  std::vector<ValueId> none(static_cast<size_t>(count));
  if (error_) return none;
  const OpDef* def = OpTable::get().find(name);
  TESSERA_CHECK(def, "decomposition of " + std::string(node_.op ? node_.op->name : "?") +
                         " names an operator that is not defined: " + std::string(name));
  auto r = graph_.add_node(*def, std::move(operands), std::move(attributes), node_.location,
                           std::vector<std::string>(static_cast<size_t>(count)));
  if (!r.ok()) return fail(std::move(r).take_error()), none;
  return graph_.node(*r).results;
}

ValueId B::op2(std::string_view name, const Arg& a, const Arg& b) {
  TESSERA_CHECK(!a.is_literal || !b.is_literal, "two literals");
  if (!ok()) return {};
  ValueId x = a.is_literal ? like(b.value, a.literal) : a.value;
  ValueId y = b.is_literal ? like(a.value, b.literal) : b.value;
  return op(name, {x, y});
}

ValueId B::constant(Tensor t) { return ok() ? graph_.add_constant(std::move(t)) : ValueId{}; }

ValueId B::scalar(DType dtype, double v) { return ok() ? constant(ops::scalar(dtype, v)) : ValueId{}; }

ValueId B::scalar_i(DType dtype, int64_t v) { return ok() ? constant(integers(dtype, {}, {v})) : ValueId{}; }

ValueId B::ints(const Ints& values) {
  return ok() ? constant(Tensor::of<int64_t>(DType::I64, {static_cast<int64_t>(values.size())}, values)) : ValueId{};
}

ValueId B::dims(const SymShape& sizes) {
  Ints values;
  for (const SymExpr& e : sizes) {
    auto v = e.as_const();
    if (!v) return op("dims_constant", {}, {{"values", sizes}, {"shape", Ints{static_cast<int64_t>(sizes.size())}}});
    values.push_back(*v);
  }
  return ints(values);
}

ValueId B::size(const SymExpr& e, DType dtype) {
  if (auto v = e.as_const()) return is_float(dtype) ? scalar(dtype, static_cast<double>(*v)) : scalar_i(dtype, *v);
  return cast(op("dims_constant", {}, {{"values", SymShape{e}}, {"shape", Ints{}}}), dtype);
}

ValueId B::select(ValueId condition, const Arg& a, const Arg& b) {
  TESSERA_CHECK(!a.is_literal || !b.is_literal, "two literals");
  if (!ok()) return {};
  ValueId x = a.is_literal ? like(b.value, a.literal) : a.value;
  ValueId y = b.is_literal ? like(a.value, b.literal) : b.value;
  return op("select", {condition, x, y});
}

ValueId B::cast(ValueId x, DType to) {
  if (!ok() || dtype(x) == to) return x;
  return op("cast", {x}, {{"to", to}});
}

ValueId B::reduce(std::string_view name, ValueId x, Ints axes, bool keepdims) {
  std::sort(axes.begin(), axes.end());
  return op(name, {x}, {{"axes", std::move(axes)}, {"keepdims", int64_t{keepdims}}});
}

ValueId B::mean(ValueId x, Ints axes, bool keepdims) {
  if (!ok()) return {};
  SymExpr count = 1;
  for (int64_t a : axes) count *= dim(x, a);
  DType d = dtype(x);
  return div(sum(x, std::move(axes), keepdims), size(count, d));
}

ValueId B::reshape(ValueId x, SymShape dims) {
  if (!ok() || shape(x) == dims) return x;
  return op("reshape", {x}, {{"shape", std::move(dims)}});
}

ValueId B::transpose(ValueId x, Ints perm) {
  if (!ok() || std::is_sorted(perm.begin(), perm.end())) return x;
  return op("transpose", {x}, {{"perm", std::move(perm)}});
}

ValueId B::expand(ValueId x, SymShape dims) {
  if (!ok() || shape(x) == dims) return x;
  return op("expand", {x}, {{"shape", std::move(dims)}});
}

ValueId B::unsqueeze(ValueId x, Ints axes) {
  if (!ok() || axes.empty()) return x;
  std::sort(axes.begin(), axes.end());
  SymShape dims = shape(x);
  for (int64_t a : axes) dims.insert(dims.begin() + std::clamp<int64_t>(a, 0, static_cast<int64_t>(dims.size())), 1);
  return reshape(x, std::move(dims));
}

ValueId B::squeeze(ValueId x, const Ints& axes) {
  if (!ok()) return x;
  SymShape dims, old = shape(x);
  for (size_t i = 0; i < old.size(); ++i)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) dims.push_back(old[i]);
  return reshape(x, std::move(dims));
}

ValueId B::slice(ValueId x, int64_t axis, const SymExpr& start, const SymExpr& size, int64_t step) {
  if (!ok()) return {};
  SymShape sizes = shape(x);
  if (axis < 0 || axis >= static_cast<int64_t>(sizes.size()))
    return fail(ErrorCode::ShapeMismatch,
                "a tensor of " + std::to_string(sizes.size()) + " dimensions has no dimension " + std::to_string(axis)),
           ValueId();
  auto a = static_cast<size_t>(axis);
  if (start.is_const(0) && step == 1 && sizes[a] == size) return x;
  SymShape starts(sizes.size(), SymExpr(0));
  Ints steps(sizes.size(), 1);
  starts[a] = start;
  steps[a] = step;
  sizes[a] = size;
  return op("slice", {x}, {{"starts", std::move(starts)}, {"steps", std::move(steps)}, {"sizes", std::move(sizes)}});
}

// A concatenation is one pass over memory with a comparison per operand for each element: a + b*k for k operands, b
// about a twentieth of a. More operands than that are concatenated in groups first, and levels of k operands cost (a +
// b*k) / log k for the whole, which is least, and flat, around k = 16. Only as many operands are grouped as it takes to
// leave 16.
ValueId B::concat(std::vector<ValueId> xs, int64_t axis) {
  constexpr size_t kOperands = 16;
  while (ok() && xs.size() > kOperands) {
    std::vector<ValueId> groups;
    size_t next = 0;
    while (groups.size() + (xs.size() - next) > kOperands && next < xs.size()) {
      const size_t excess = groups.size() + (xs.size() - next) - kOperands;
      const size_t end = std::min(xs.size(), next + std::min(kOperands, excess + 1));
      groups.push_back(end - next == 1 ? xs[next]
                                       : op("concat",
                                            {xs.begin() + static_cast<std::ptrdiff_t>(next),
                                             xs.begin() + static_cast<std::ptrdiff_t>(end)},
                                            {{"axis", axis}}));
      next = end;
    }
    groups.insert(groups.end(), xs.begin() + static_cast<std::ptrdiff_t>(next), xs.end());
    xs = std::move(groups);
  }
  if (!ok()) return {};
  if (xs.size() == 1) return xs[0];
  return op("concat", std::move(xs), {{"axis", axis}});
}

ValueId B::pad(ValueId x, SymShape begin, SymShape end, ValueId value) {
  auto zero = [](const SymExpr& e) { return e.is_const(0); };
  if (!ok() || (std::all_of(begin.begin(), begin.end(), zero) && std::all_of(end.begin(), end.end(), zero))) return x;
  std::vector<ValueId> operands = {x};
  if (value.valid()) operands.push_back(value);
  return op("pad", std::move(operands),
            {{"pads_begin", std::move(begin)}, {"pads_end", std::move(end)}, {"mode", std::string("constant")}});
}

ValueId B::iota(SymShape shape, int64_t axis) { return op("iota", {}, {{"shape", std::move(shape)}, {"axis", axis}}); }

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

ScalarId checked_index(ScalarDag& dag, ScalarId raw, const SymExpr& extent) {
  IndexMath m{dag};
  ScalarId i = dag[raw].dtype == DType::I64 ? raw : dag.cast(raw, DType::I64);
  ScalarId n = m.sym(extent);
  ScalarId wrapped = m.select(m.lt(i, m.sym(0)), m.add(i, n), i);
  return dag.check_bounds(wrapped, n);
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
