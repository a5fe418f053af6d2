#include "frontend/fx/promotion.h"
#include "graph/ops/formulas.h"

namespace tessera::fx {

ValueId literal(ops::B& b, const Scalar& s, DType dtype) {
  if (!b.ok()) return {};
  if (info(dtype).kind == DTypeKind::Complex) {
    b.fail(ErrorCode::UnsupportedFeature, "a number as a complex one");
    return {};
  }
  switch (s.kind) {
  case Scalar::Kind::Bool:
  case Scalar::Kind::Int: return b.scalar_i(dtype, s.integer);
  case Scalar::Kind::Float: return b.scalar(dtype, s.number);
  case Scalar::Kind::Size: return b.size(s.size, dtype);
  case Scalar::Kind::Number: return cast(b, s.value, dtype);
  }
  return {};
}

ValueId operand(ops::B& b, Arguments& in, std::string_view name, DType dtype) {
  if (in.is_tensor(name)) {
    ValueId v = in.tensor(name);
    return b.ok() ? cast(b, v, dtype) : ValueId();
  }
  return literal(b, in.scalar(name), dtype);
}

ValueId scaled(ops::B& b, Arguments& in, ValueId x, std::string_view name) {
  const Scalar s = in.scalar(name);
  if (!b.ok() || (s.is_constant() && s.number == 1)) return x;
  const DType stored = b.dtype(x);
  ValueId wide = widen(b, x);
  return cast(b, mul(b, wide, literal(b, s, b.dtype(wide))), stored);
}

namespace {
enum class Category : uint8_t { None, Bool, Integer, Float, Complex };
Category category(DType d) {
  if (d == DType::Bool) return Category::Bool;
  if (is_integer(d)) return Category::Integer;
  return info(d).kind == DTypeKind::Complex ? Category::Complex : Category::Float;
}
} // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  Category ca = category(a), cb = category(b);
  if (ca != cb) return ca > cb ? a : b;
  const bool unsigned_a = info(a).kind == DTypeKind::Unsigned, unsigned_b = info(b).kind == DTypeKind::Unsigned;
  if (ca == Category::Integer && unsigned_a != unsigned_b) { // u8 with i8 is i16; u8 with a wider signed type is that
    DType s = unsigned_a ? b : a, u = unsigned_a ? a : b;
    if (info(s).bits > info(u).bits) return s;
    return info(u).bits == 8 ? DType::I16 : info(u).bits == 16 ? DType::I32 : DType::I64;
  }
  if (info(a).bits == info(b).bits && ca == Category::Float) return DType::F32; // f16 with bf16
  return info(a).bits >= info(b).bits ? a : b;
}

DType promoted(const ops::B& b, Arguments& in, std::initializer_list<std::string_view> names) {
  // The highest category decides; within it tensors with dimensions come before scalars (0-d), those before numbers.
  std::optional<DType> dims, zero, number;
  auto meet = [](std::optional<DType>& into, DType d) { into = into ? promote(*into, d) : d; };
  for (std::string_view n : names) {
    if (!in.given(n)) continue;
    if (in.is_tensor(n)) {
      ValueId v = in.tensor(n);
      if (!b.ok()) return DType::F32;
      meet(b.type(v).rank() > 0 ? dims : zero, b.dtype(v));
      continue;
    }
    const Scalar s = in.scalar(n);
    if (!b.ok()) return DType::F32;
    const bool real = s.kind == Scalar::Kind::Float || s.kind == Scalar::Kind::Number;
    meet(number, s.kind == Scalar::Kind::Bool ? DType::Bool : real ? DType::F32 : DType::I64);
  }
  std::optional<DType> out = dims;
  for (const auto& lower : {zero, number}) {
    if (!lower) continue;
    if (!out)
      out = lower;
    else if (category(*lower) > category(*out))
      out = lower;
  }
  return out.value_or(DType::F32);
}

} // namespace tessera::fx
