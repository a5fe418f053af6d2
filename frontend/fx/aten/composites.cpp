// Operators that PyTorch itself defines by others, and that programs call before they are decomposed.
#include "frontend/fx/aten/parts.h"
#include <cmath>

namespace tessera::fx {
namespace {

// Differences of neighbours along a dimension, n times; with what stands before and behind it.
void translate_diff(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t n = c.in.integer("n");
  if (!c.b.ok()) return;
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  if (n < 0) return c.b.fail(ErrorCode::BadAttribute, "argument 'n' is " + std::to_string(n) + ", expected 0 or more");
  std::vector<ValueId> parts;
  for (ValueId v : {c.in.maybe("prepend"), x, c.in.maybe("append")})
    if (v.valid()) parts.push_back(v);
  if (!c.b.ok()) return;
  if (parts.size() > 1 && n > 0) x = concat(c.b, parts, axis);
  for (int64_t i = 0; i < n && c.b.ok(); ++i) {
    const SymExpr size = c.b.dim(x, axis);
    if (size.is_const(0)) break;
    ValueId next = slice(c.b, x, axis, 1, size - 1), last = slice(c.b, x, axis, 0, size - 1);
    x = c.b.dtype(x) == DType::Bool ? ne(c.b, next, last) : sub(c.b, next, last);
  }
  c.result(x);
}

// |self - other| <= atol + rtol * |other|
void translate_isclose(Call& c) {
  const DType d = promoted(c.b, c.in, {"self", "other"});
  ValueId x = operand(c.b, c.in, "self", d), y = operand(c.b, c.in, "other", d);
  const double rtol = c.in.number("rtol"), atol = c.in.number("atol");
  const bool equal_nan = c.in.flag("equal_nan");
  if (!c.b.ok()) return;
  ValueId close = eq(c.b, x, y);
  const DType wide = is_float(d) ? compute_dtype(d) : DType::F32;
  if (rtol != 0 || atol != 0) {
    ValueId a = cast(c.b, x, wide), b = cast(c.b, y, wide);
    ValueId difference = abs(c.b, sub(c.b, a, b));
    ValueId near = le(c.b, difference, add(c.b, mul(c.b, abs(c.b, b), rtol), atol));
    if (is_float(d)) near = logical_and(c.b, near, lt(c.b, difference, c.b.scalar(wide, HUGE_VAL)));
    close = logical_or(c.b, close, near);
  }
  if (equal_nan && is_float(d)) close = logical_or(c.b, close, logical_and(c.b, ne(c.b, x, x), ne(c.b, y, y)));
  c.result(close);
}

} // namespace

void register_composites(AtenTable& t) {
  t.add({"diff.default"}, translate_diff);
  t.add({"isclose.default"}, translate_isclose);
}

} // namespace tessera::fx
