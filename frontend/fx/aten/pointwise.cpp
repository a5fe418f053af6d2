// Functions of single elements: arithmetic, comparisons, activations.
#include "frontend/fx/call.h"

namespace tessera::fx {
namespace {

// alpha scales the second operand: add, sub.
template <bool kSubtract>
void translate_add(Call& c) {
  const DType d = c.promoted({"self", "other"});
  ValueId a = c.operand("self", d), other = c.operand("other", d);
  if (c.given("alpha")) other = c.scaled(other, "alpha");
  if (d == DType::Bool) return c.result(c.b.logical_or(a, other));
  c.result(kSubtract ? c.b.sub(a, other) : c.b.add(a, other));
}

void translate_mul(Call& c) {
  const DType d = c.promoted({"self", "other"});
  ValueId a = c.operand("self", d), other = c.operand("other", d);
  c.result(d == DType::Bool ? c.b.logical_and(a, other) : c.b.mul(a, other));
}

} // namespace

void register_pointwise(AtenTable& t) {
  t.add({"add.Tensor", "add.Scalar"}, translate_add<false>);
  t.add({"sub.Tensor", "sub.Scalar"}, translate_add<true>);
  t.add({"mul.Tensor", "mul.Scalar"}, translate_mul);
}

} // namespace tessera::fx
