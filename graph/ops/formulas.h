// Operators as functions of a builder, so that a decomposition reads as its formula. Each adds a node; after an error
// nothing is added and the value is invalid.
#pragma once
#include "graph/ops/builder.h"

namespace tessera::ops {

// ---- pointwise: one operand of two may be a literal, which takes the other's dtype
inline ValueId add(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("add", x, y); }
inline ValueId sub(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("sub", x, y); }
inline ValueId mul(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("mul", x, y); }
inline ValueId div(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("div", x, y); }
inline ValueId pow(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("pow", x, y); }
inline ValueId min(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("min", x, y); }
inline ValueId max(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("max", x, y); }
inline ValueId eq(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("eq", x, y); }
inline ValueId ne(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("ne", x, y); }
inline ValueId lt(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("lt", x, y); }
inline ValueId le(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("le", x, y); }
inline ValueId gt(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("gt", x, y); }
inline ValueId ge(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("ge", x, y); }
inline ValueId logical_and(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("and", x, y); }
inline ValueId logical_or(B& b, const B::Arg& x, const B::Arg& y) { return b.op2("or", x, y); }
inline ValueId logical_not(B& b, ValueId x) { return b.op1("not", x); }
inline ValueId neg(B& b, ValueId x) { return b.op1("neg", x); }
inline ValueId abs(B& b, ValueId x) { return b.op1("abs", x); }
inline ValueId exp(B& b, ValueId x) { return b.op1("exp", x); }
inline ValueId log(B& b, ValueId x) { return b.op1("log", x); }
inline ValueId sqrt(B& b, ValueId x) { return b.op1("sqrt", x); }
inline ValueId rsqrt(B& b, ValueId x) { return b.op1("rsqrt", x); }
inline ValueId tanh(B& b, ValueId x) { return b.op1("tanh", x); }
inline ValueId erf(B& b, ValueId x) { return b.op1("erf", x); }
inline ValueId sigmoid(B& b, ValueId x) { return b.op1("sigmoid", x); }
inline ValueId floor(B& b, ValueId x) { return b.op1("floor", x); }
ValueId select(B& b, ValueId condition, const B::Arg& x, const B::Arg& y); // one of x and y is a value
ValueId cast(B& b, ValueId x, DType to);                                   // x itself when it is of that dtype
ValueId model_cast(B& b, ValueId x, DType to); // one that the model requests: what the dtypes cannot hold is lost
// x as f32 when it is a smaller float (f16, bf16, fp8): sums and exponentials are taken in f32.
inline ValueId widen(B& b, ValueId x) { return cast(b, x, compute_dtype(b.dtype(x))); }

// ---- reductions (axes need not be sorted; non-negative)
ValueId reduce(B& b, std::string_view op, ValueId x, Ints axes, bool keepdims);
inline ValueId sum(B& b, ValueId x, Ints axes, bool keepdims) {
  return reduce(b, "reduce_sum", x, std::move(axes), keepdims);
}
ValueId mean(B& b, ValueId x, Ints axes, bool keepdims); // sum divided by the number of elements, in x's dtype

// ---- views and movement; each yields x itself when nothing changes
ValueId reshape(B& b, ValueId x, SymShape dims);
ValueId transpose(B& b, ValueId x, Ints perm);
ValueId expand(B& b, ValueId x, SymShape dims);
ValueId unsqueeze(B& b, ValueId x, Ints axes);      // positions in the result, non-negative
ValueId squeeze(B& b, ValueId x, const Ints& axes); // non-negative
ValueId slice(B& b, ValueId x, int64_t axis, const SymExpr& start, const SymExpr& size, int64_t step = 1);
ValueId concat(B& b, std::vector<ValueId> xs, int64_t axis);
inline ValueId gather(B& b, ValueId x, ValueId indices, int64_t axis) {
  return b.op("gather", {x, indices}, {{"axis", axis}});
}
// Zero-filled (value left out) or filled padding of every axis.
ValueId pad(B& b, ValueId x, SymShape begin, SymShape end, ValueId value = {});
ValueId iota(B& b, SymShape shape, int64_t axis); // i64

inline ValueId matmul(B& b, ValueId x, ValueId y) { return b.op("matmul", {x, y}); }
// The product in the dtype in which it is accumulated: f16 and bf16 operands give f32.
ValueId wide_matmul(B& b, ValueId x, ValueId y);

} // namespace tessera::ops
