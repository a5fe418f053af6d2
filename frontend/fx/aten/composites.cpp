// Operators that PyTorch itself defines by others, and that programs call before they are decomposed.
#include "frontend/fx/aten/parts.h"
#include <cmath>

namespace tessera::fx {
namespace {

// Differences of neighbours along a dimension, n times; with what stands before and behind it.
void translate_diff(Call& c) {
  ValueId x = c.tensor("self");
  const int64_t n = c.integer("n");
  if (!c.b.ok()) return;
  const int64_t axis = c.axis("dim", c.b.rank(x));
  if (n < 0) return c.b.fail(ErrorCode::BadAttribute, "argument 'n' is " + std::to_string(n) + ", expected 0 or more");
  std::vector<ValueId> parts;
  for (ValueId v : {c.maybe("prepend"), x, c.maybe("append")})
    if (v.valid()) parts.push_back(v);
  if (!c.b.ok()) return;
  if (parts.size() > 1 && n > 0) x = c.b.concat(parts, axis);
  for (int64_t i = 0; i < n && c.b.ok(); ++i) {
    const SymExpr size = c.b.dim(x, axis);
    if (size.is_const(0)) break;
    ValueId next = c.b.slice(x, axis, 1, size - 1), last = c.b.slice(x, axis, 0, size - 1);
    x = c.b.dtype(x) == DType::Bool ? c.b.ne(next, last) : c.b.sub(next, last);
  }
  c.result(x);
}

// |self - other| <= atol + rtol * |other|
void translate_isclose(Call& c) {
  const DType d = c.promoted({"self", "other"});
  ValueId x = c.operand("self", d), y = c.operand("other", d);
  const double rtol = c.number("rtol"), atol = c.number("atol");
  const bool equal_nan = c.flag("equal_nan");
  if (!c.b.ok()) return;
  ValueId close = c.b.eq(x, y);
  const DType wide = is_float(d) ? compute_dtype(d) : DType::F32;
  if (rtol != 0 || atol != 0) {
    ValueId a = c.b.cast(x, wide), b = c.b.cast(y, wide);
    ValueId difference = c.b.abs(c.b.sub(a, b));
    ValueId near = c.b.le(difference, c.b.add(c.b.mul(c.b.abs(b), rtol), atol));
    if (is_float(d)) near = c.b.logical_and(near, c.b.lt(difference, c.b.scalar(wide, HUGE_VAL)));
    close = c.b.logical_or(close, near);
  }
  if (equal_nan && is_float(d)) close = c.b.logical_or(close, c.b.logical_and(c.b.ne(x, x), c.b.ne(y, y)));
  c.result(close);
}

} // namespace

void register_composites(AtenTable& t) {
  t.add({"diff.default"}, translate_diff);
  t.add({"isclose.default"}, translate_isclose);
}

} // namespace tessera::fx
