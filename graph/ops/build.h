// What record files are written with: inference rules, a builder for decompositions, index arithmetic for indexing
// bodies. The loops of references are in loops.h, tensors of samples in samples.h; this header brings both.
#pragma once
#include "graph/ops/loops.h"
#include "graph/ops/op.h"
#include "graph/ops/samples.h"

namespace tessera::ops {

// ---- inference ------------------------------------------------------------------------------------------------------
// Result 0 is of operand 0's type.
[[nodiscard]] Status infer_same(InferContext& c);
// Every given operand broadcast to one shape; dtype of operand `dtype_of`, or a fixed one.
[[nodiscard]] InferFn infer_broadcast(int dtype_of = 0);
[[nodiscard]] InferFn infer_broadcast_as(DType dtype);
// The broadcast shape of all operands that are given.
[[nodiscard]] Result<SymShape> broadcast_operands(InferContext& c);
[[nodiscard]] Status set_result(InferContext& c, DType dtype, SymShape shape, int result = 0);
// Axes brought into [0, rank), sorted. Error BadAttribute on one that is out of range or given twice.
[[nodiscard]] Result<Ints> normal_axes(const InferContext& c, const Ints& axes, int rank);
// Shape after reducing over sorted axes.
[[nodiscard]] SymShape reduced_shape(const SymShape& shape, const Ints& axes, bool keepdims);

// ---- decompositions -------------------------------------------------------------------------------------------------
// Builder with a sticky error: after the first failure every operation yields an invalid value and nothing is added;
// done() returns what was built or that first error. So a decomposition reads as its formula:
//   B b(graph, node);
//   return b.done(b.mul(b.in(0), b.sigmoid(b.in(0))));
// Code that takes shapes apart after a step that can fail checks ok() first; shape() of an invalid value is empty.
class B {
public:
  // A tensor operand: a value, or a literal of the other operand's dtype.
  struct Arg {
    Arg(ValueId v) : value(v) {}                    // NOLINT: implicit on purpose
    Arg(double v) : literal(v), is_literal(true) {} // NOLINT: implicit on purpose
    ValueId value;
    double literal = 0;
    bool is_literal = false;
  };

  // Copies the node: appending to the graph may move the one in it.
  B(Graph& graph, const Node& node);
  ~B();

  // -- what the node has
  [[nodiscard]] const Node& node() const { return node_; }
  [[nodiscard]] const Attributes& attr() const { return node_.attributes; }
  [[nodiscard]] int opset() const { return node_.opset; }
  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] ShapeEnv& env() { return graph_.env(); }
  [[nodiscard]] int operands() const { return static_cast<int>(node_.operands.size()); }
  [[nodiscard]] bool has(int operand) const;
  [[nodiscard]] ValueId in(int operand) const;    // invalid when left out
  [[nodiscard]] TensorType type(ValueId v) const; // a copy; f32[] for an invalid value
  [[nodiscard]] SymShape shape(ValueId v) const { return type(v).shape; }
  [[nodiscard]] DType dtype(ValueId v) const { return type(v).dtype; }
  [[nodiscard]] int rank(ValueId v) const { return type(v).rank(); }
  [[nodiscard]] SymExpr dim(ValueId v, int64_t axis) const; // 1 when there is no such dimension
  // Contents of an integer operand that must be known when compiling; fails "... depends on run-time data".
  [[nodiscard]] std::vector<SymExpr> known(int operand);
  [[nodiscard]] Ints known_ints(int operand);
  [[nodiscard]] int64_t axis(int64_t a, int rank);     // into [0, rank); fails BadAttribute
  [[nodiscard]] Ints axes(const Ints& axes, int rank); // the same for several, sorted and distinct

  // -- errors
  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  void fail(Diagnostic d);
  void fail(ErrorCode code, std::string message);
  void check(const Status& status) {
    if (!status.ok()) fail(status.error());
  }
  [[nodiscard]] Result<std::vector<ValueId>> done(ValueId v) { return done(std::vector<ValueId>{v}); }
  [[nodiscard]] Result<std::vector<ValueId>> done(std::vector<ValueId> vs);
  // The first error, where there was one and nothing more can be built.
  [[nodiscard]] Result<std::vector<ValueId>> failed() const {
    TESSERA_CHECK(error_.has_value(), "nothing failed");
    return *error_;
  }

  // -- any operator by name
  ValueId op(std::string_view name, std::vector<ValueId> operands, Attributes attributes = {});
  // One with several results; `count` values come back (invalid ones after an error).
  std::vector<ValueId> ops(std::string_view name, std::vector<ValueId> operands, Attributes attributes, int count);
  ValueId op1(std::string_view name, ValueId x) { return op(name, {x}); }
  ValueId op2(std::string_view name, const Arg& a, const Arg& b);

  // -- constants
  ValueId constant(Tensor t);
  ValueId scalar(DType dtype, double v);
  ValueId scalar_i(DType dtype, int64_t v);
  ValueId like(ValueId x, double v) { return scalar(dtype(x), v); }
  ValueId ints(const Ints& values);    // i64 vector
  ValueId dims(const SymShape& sizes); // i64 vector: a constant, or dims_constant when symbolic
  // A size as a scalar of `dtype`: a constant, or dims_constant when symbolic.
  ValueId size(const SymExpr& e, DType dtype);

  // -- pointwise
  ValueId add(const Arg& a, const Arg& b) { return op2("add", a, b); }
  ValueId sub(const Arg& a, const Arg& b) { return op2("sub", a, b); }
  ValueId mul(const Arg& a, const Arg& b) { return op2("mul", a, b); }
  ValueId div(const Arg& a, const Arg& b) { return op2("div", a, b); }
  ValueId pow(const Arg& a, const Arg& b) { return op2("pow", a, b); }
  ValueId min(const Arg& a, const Arg& b) { return op2("min", a, b); }
  ValueId max(const Arg& a, const Arg& b) { return op2("max", a, b); }
  ValueId eq(const Arg& a, const Arg& b) { return op2("eq", a, b); }
  ValueId ne(const Arg& a, const Arg& b) { return op2("ne", a, b); }
  ValueId lt(const Arg& a, const Arg& b) { return op2("lt", a, b); }
  ValueId le(const Arg& a, const Arg& b) { return op2("le", a, b); }
  ValueId gt(const Arg& a, const Arg& b) { return op2("gt", a, b); }
  ValueId ge(const Arg& a, const Arg& b) { return op2("ge", a, b); }
  ValueId logical_and(const Arg& a, const Arg& b) { return op2("and", a, b); }
  ValueId logical_or(const Arg& a, const Arg& b) { return op2("or", a, b); }
  ValueId logical_not(ValueId a) { return op1("not", a); }
  ValueId neg(ValueId a) { return op1("neg", a); }
  ValueId abs(ValueId a) { return op1("abs", a); }
  ValueId exp(ValueId a) { return op1("exp", a); }
  ValueId log(ValueId a) { return op1("log", a); }
  ValueId sqrt(ValueId a) { return op1("sqrt", a); }
  ValueId rsqrt(ValueId a) { return op1("rsqrt", a); }
  ValueId tanh(ValueId a) { return op1("tanh", a); }
  ValueId erf(ValueId a) { return op1("erf", a); }
  ValueId sigmoid(ValueId a) { return op1("sigmoid", a); }
  ValueId floor(ValueId a) { return op1("floor", a); }
  ValueId select(ValueId condition, const Arg& a, const Arg& b); // one of a and b is a value
  ValueId cast(ValueId x, DType to);                             // x itself when it is of that dtype
  // x as f32 when it is a smaller float (f16, bf16, fp8): sums and exponentials are taken in f32.
  ValueId widen(ValueId x) { return cast(x, compute_dtype(dtype(x))); }

  // -- reductions (axes need not be sorted; non-negative)
  ValueId reduce(std::string_view op, ValueId x, Ints axes, bool keepdims);
  ValueId sum(ValueId x, Ints axes, bool keepdims) { return reduce("reduce_sum", x, std::move(axes), keepdims); }
  ValueId mean(ValueId x, Ints axes, bool keepdims); // sum divided by the number of elements, in x's dtype

  // -- views and movement; each yields x itself when nothing changes
  ValueId reshape(ValueId x, SymShape dims);
  ValueId transpose(ValueId x, Ints perm);
  ValueId expand(ValueId x, SymShape dims);
  ValueId unsqueeze(ValueId x, Ints axes);      // positions in the result, non-negative
  ValueId squeeze(ValueId x, const Ints& axes); // non-negative
  ValueId slice(ValueId x, int64_t axis, const SymExpr& start, const SymExpr& size, int64_t step = 1);
  ValueId concat(std::vector<ValueId> xs, int64_t axis);
  ValueId gather(ValueId x, ValueId indices, int64_t axis) { return op("gather", {x, indices}, {{"axis", axis}}); }
  // Zero-filled (value left out) or filled padding of every axis.
  ValueId pad(ValueId x, SymShape begin, SymShape end, ValueId value = {});
  ValueId iota(SymShape shape, int64_t axis); // i64
  ValueId matmul(ValueId a, ValueId b) { return op("matmul", {a, b}); }

private:
  Graph& graph_;
  Node node_;
  std::optional<Diagnostic> error_;
};

// ---- parts of records
// ------------------------------------------------------------------------------------------------ An operator of
// ONNX's name `name` that is rewritten into others.
[[nodiscard]] OpDef composite(std::string_view name, std::string_view summary, std::vector<OperandDef> operands,
                              DecomposeFn rewrite);
// An optional attribute.
[[nodiscard]] AttrDef number(std::string_view name, double fallback);
[[nodiscard]] AttrDef integer(std::string_view name, int64_t fallback);

// ---- index arithmetic of indexing bodies ----------------------------------------------------------------------------
// i64 arithmetic on scalar nodes that stays one Index node wherever its inputs are (so that views fold), and falls back
// to scalar operators where an index is data. Divisions expect non-negative dividends and positive divisors.
struct IndexMath {
  ScalarDag& d;
  [[nodiscard]] ScalarId sym(const SymExpr& e) const { return d.index(e); }
  [[nodiscard]] ScalarId add(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId sub(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId mul(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId div(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId mod(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId min(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId max(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId lt(ScalarId a, ScalarId b) const; // bool
  [[nodiscard]] ScalarId le(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId eq(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId both(ScalarId a, ScalarId b) const;
  [[nodiscard]] ScalarId select(ScalarId c, ScalarId a, ScalarId b) const;
  // Row-major position of an index in a shape, and the index at a position.
  [[nodiscard]] ScalarId linear(std::span<const ScalarId> at, std::span<const SymExpr> shape) const;
  [[nodiscard]] std::vector<ScalarId> delinear(ScalarId position, std::span<const SymExpr> shape) const;
};
// Operand's element, in its compute dtype; `predicate` masks.
[[nodiscard]] ScalarId load(ScalarDag& dag, const Graph& graph, const Node& node, int operand, std::vector<ScalarId> at,
                            ScalarId predicate = -1);
// An index read from data: cast to i64, negative ones counted from the end, checked against `extent`.
[[nodiscard]] ScalarId checked_index(ScalarDag& dag, ScalarId raw, const SymExpr& extent);
[[nodiscard]] inline const TensorType& operand_type(const Graph& g, const Node& n, int i) {
  return g.type(n.operands[static_cast<size_t>(i)]);
}
[[nodiscard]] inline const TensorType& result_type(const Graph& g, const Node& n, int i = 0) {
  return g.type(n.results[static_cast<size_t>(i)]);
}

} // namespace tessera::ops
