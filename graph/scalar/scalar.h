// ScalarDag: what an operator computes for one element, as data.
//
// The idea. A pointwise operator is a scalar function; a view is "load the operand at that index"; a reduction is a
// fold of a scalar function. All three are written once, as a small DAG of scalar nodes, by the body in the operator's
// record. Everything else is an interpretation of the DAG: constant folding and the loop interpreter evaluate it,
// symbolic evaluation evaluates it over SymExpr, fusion substitutes one DAG into another, the cost model counts it, the
// report prints it, codegen emits it.
//
//   leaf          Const          a literal
//                 Index          a SymExpr over axes and sizes (i64, or bool for comparisons)
//                 Load           element of operand `operand` at the index `args` (one i64 node per dimension); when
//                                `masked`, the last arg is a predicate: where it is false, nothing is read and the
//                                value is 0
//   check         CheckBounds    (i, extent): i when 0 <= i < extent, else reports an index error to the launch and
//                                yields 0
//   fold          Reduce         folds args[0] over the reduction axes of the nest
//   pointwise     the rest       elementwise on values of one dtype (comparisons yield bool, Select takes bool first)
//
// Semantics of pointwise operators are those of scalar_op's table: integer division truncates and x/0 = 0 (never
// traps), Mod has the divisor's sign, Fmod the dividend's; shifts by the width or more yield 0 (or the sign for signed
// >>); Min and Max keep NaN; Round is half to even; casts float->int truncate and saturate, NaN -> 0; int->int wrap.
// f16, bf16 and smaller floats never appear as the dtype of an arithmetic node: loads of them are cast to f32
// (compute_dtype), results are cast at the store.
#pragma once
#include "base/dtype.h"
#include "symbols/expr.h"
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera {

enum class ScalarOp : uint8_t {
  Const,
  Index,
  Load,
  CheckBounds,
  Reduce,
  Cast,    // args[0] to dtype
  Bitcast, // the bits of args[0] as dtype: numbers of 32 or 64 bits, both of the same width
  Neg,
  Abs,
  Sign,
  Floor,
  Ceil,
  Round,
  Trunc,
  Sqrt,
  Rsqrt,
  Reciprocal,
  Exp,
  Exp2,
  Expm1,
  Log,
  Log2,
  Log1p,
  Sin,
  Cos,
  Tan,
  Asin,
  Acos,
  Atan,
  Sinh,
  Cosh,
  Tanh,
  Asinh,
  Acosh,
  Atanh,
  Erf,
  Sigmoid,
  IsNan,
  IsInf,
  Not,
  Add,
  Sub,
  Mul,
  Div,
  Mod,
  Fmod,
  Pow,
  Min,
  Max,
  And,
  Or,
  Xor,
  Shl,
  Shr,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  Select,
  Fma,
  Count_,
};
struct ScalarOpInfo {
  ScalarOp op;
  std::string_view name; // "add", as text forms print it
  int arity;             // -1 for leaves with their own rules
  bool yields_bool;
  bool commutative;
  bool jumps; // a small change of an operand may change the result much: operands are read as their type stores them
  int cost;   // rough instructions per element on a vector unit (exp ~ 10); for the cost model
};
[[nodiscard]] const ScalarOpInfo& info(ScalarOp op);
[[nodiscard]] std::optional<ScalarOp> scalar_op_from_name(std::string_view name);

// Any and All fold bools; ArgMax and ArgMin fold a value and yield the i64 position along the reduction (row-major over
// its axes), first one on ties, last when select_last; NaN counts as the extreme (as in numpy).
enum class ReduceKind : uint8_t { Sum, Prod, Max, Min, Any, All, ArgMax, ArgMin };
[[nodiscard]] std::string_view name(ReduceKind kind);
[[nodiscard]] std::optional<ReduceKind> reduce_kind_from_name(std::string_view name);
// Identity element: 0, 1, -inf / lowest, +inf / highest, false, true. Arg kinds have none: empty reductions are refused
// by inference.
[[nodiscard]] double reduce_identity_f64(ReduceKind kind, DType dtype);
[[nodiscard]] int64_t reduce_identity_i64(ReduceKind kind, DType dtype);

// f32 for f16, bf16, fp8, fp4; itself otherwise.
[[nodiscard]] DType compute_dtype(DType storage);
[[nodiscard]] inline bool computes_wider(DType storage) { return compute_dtype(storage) != storage; }

using ScalarId = int32_t;

struct ScalarNode {
  ScalarOp op = ScalarOp::Const;
  DType dtype = DType::F32;
  std::vector<ScalarId> args;
  int32_t operand = -1;     // Load; CheckBounds: the operand of node `i` that has the indices
  bool masked = false;      // Load; CheckBounds: negative indices were counted from the end
  bool select_last = false; // Reduce ArgMax / ArgMin
  ReduceKind reduce = ReduceKind::Sum;
  double f = 0;  // Const of float dtype
  int64_t i = 0; // Const of integer or bool dtype; CheckBounds: node id + 1, 0: unknown
  SymExpr sym;   // Index; CheckBounds: row-major position in the tensor of indices, -1: unknown
  bool operator==(const ScalarNode&) const = default;
};

// Append-only, hash-consed: adding an equal node yields the same id, and args always precede their users. Arithmetic
// between Index (and integer Const) nodes folds into one Index; constants fold; nothing else is simplified (IEEE).
class ScalarDag {
public:
  ScalarId constant_f(DType dtype, double value);
  ScalarId constant_i(DType dtype, int64_t value);
  ScalarId index(const SymExpr& expr);     // i64
  ScalarId condition(const SymExpr& expr); // bool
  ScalarId load(int operand, DType dtype, std::vector<ScalarId> index, ScalarId predicate = -1);
  ScalarId check_bounds(ScalarId i, ScalarId extent);
  ScalarId reduce(ReduceKind kind, ScalarId value, bool select_last = false);
  ScalarId cast(ScalarId value, DType dtype);
  ScalarId bitcast(ScalarId value, DType dtype);
  ScalarId op(ScalarOp op, ScalarId a);
  ScalarId op(ScalarOp op, ScalarId a, ScalarId b);
  ScalarId op(ScalarOp op, ScalarId a, ScalarId b, ScalarId c);
  ScalarId add(ScalarNode node); // any node, with the same folding

  [[nodiscard]] const ScalarNode& operator[](ScalarId id) const { return nodes_[static_cast<size_t>(id)]; }
  [[nodiscard]] int size() const { return static_cast<int>(nodes_.size()); }
  // The SymExpr an i64 or bool node stands for, when it is an Index or an integer Const.
  [[nodiscard]] std::optional<SymExpr> as_sym(ScalarId id) const;
  // Clones what `root` needs of `other` into this one; `leaf` may replace any node (return -1 to clone it as it is).
  ScalarId import(
      const ScalarDag& other, ScalarId root,
      const std::function<ScalarId(ScalarDag& into, const ScalarNode& node, std::span<const ScalarId> new_args)>& leaf,
      std::unordered_map<ScalarId, ScalarId>& done);
  [[nodiscard]] std::string str(ScalarId root) const;

private:
  std::vector<ScalarNode> nodes_;
  std::unordered_multimap<uint64_t, ScalarId> by_hash_;
};

// Evaluates one pointwise operator (not Const, Index, Load, Reduce, CheckBounds) on numbers, in exactly the dtype's
// arithmetic. Integers and bool travel in `i`, floats in `f` (f32 results are rounded to f32).
struct ScalarValue {
  double f = 0;
  int64_t i = 0;
};
[[nodiscard]] ScalarValue eval_scalar(ScalarOp op, DType result, DType argument, std::span<const ScalarValue> args);

} // namespace tessera
