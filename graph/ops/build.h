// The parts that record files are written with: inference rules, parts of records, index arithmetic for indexing
// bodies. This header brings the builder of decompositions (builder.h), its operators (formulas.h), the loops of
// references (loops.h) and tensors of samples (samples.h).
#pragma once
#include "graph/ops/formulas.h"
#include "graph/ops/loops.h"
#include "graph/ops/record.h"
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
// The operand's element at `at` as an index: cast to i64, negative ones counted from the end if `from_end`, checked
// against `extent`.
[[nodiscard]] ScalarId load_index(ScalarDag& dag, const Graph& graph, const Node& node, int operand,
                                  std::vector<ScalarId> at, const SymExpr& extent, bool from_end = true);
[[nodiscard]] inline const TensorType& operand_type(const Graph& g, const Node& n, int i) {
  return g.type(n.operands[static_cast<size_t>(i)]);
}
[[nodiscard]] inline const TensorType& result_type(const Graph& g, const Node& n, int i = 0) {
  return g.type(n.results[static_cast<size_t>(i)]);
}

} // namespace tessera::ops
