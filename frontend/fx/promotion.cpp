#include "frontend/fx/promotion.h"
#include "graph/ops/formulas.h"
#include <cmath>

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

namespace {
// The greatest finite number of a float type.
double greatest(DType dtype) {
  switch (dtype) {
  case DType::F64: return std::numeric_limits<double>::max();
  case DType::F16: return 65504;
  case DType::BF16: return 0x1.fep127;
  default: return std::numeric_limits<float>::max();
  }
}

// Whether PyTorch converts the number without an error. Negative integers wrap into unsigned types.
bool converts(const Scalar& s, DType dtype) {
  if (!s.is_constant() || s.kind == Scalar::Kind::Bool || side_of(s, dtype) == 0) return true;
  if (s.kind != Scalar::Kind::Int || info(dtype).kind != DTypeKind::Unsigned || s.integer >= 0) return false;
  const uint64_t magnitude = uint64_t{0} - static_cast<uint64_t>(s.integer);
  return info(dtype).bits >= 64 || magnitude >> info(dtype).bits == 0;
}

ValueId tensor_as(ops::B& b, Arguments& in, std::string_view name, DType dtype) {
  ValueId v = in.tensor(name);
  if (!b.ok()) return {};
  return is_float(b.dtype(v)) && is_integer(dtype) ? convert(b, v, dtype) : cast(b, v, dtype);
}
} // namespace

int side_of(const Scalar& s, DType dtype) {
  if (!s.is_constant() || dtype == DType::Bool) return 0;
  if (is_float(dtype)) {
    const double x = s.kind == Scalar::Kind::Float ? s.number : static_cast<double>(s.integer);
    return !std::isfinite(x) || std::fabs(x) <= greatest(dtype) ? 0 : x < 0 ? -1 : 1;
  }
  const int bits = static_cast<int>(info(dtype).bits);
  const bool is_signed = info(dtype).kind == DTypeKind::Signed;
  if (s.kind == Scalar::Kind::Float) {
    const double end = std::ldexp(1.0, is_signed ? bits - 1 : bits), least = is_signed ? -end : 0;
    return s.number < least ? -1 : s.number >= least && s.number < end ? 0 : 1;
  }
  if (bits >= 64) return is_signed || s.integer >= 0 ? 0 : -1;
  const int64_t end = int64_t{1} << (is_signed ? bits - 1 : bits), least = is_signed ? -end : 0;
  return s.integer < least ? -1 : s.integer >= end ? 1 : 0;
}

ValueId exact_literal(ops::B& b, const Scalar& s, DType dtype) {
  if (b.ok() && !converts(s, dtype))
    b.fail(ErrorCode::UnsupportedFeature, "a number that " + std::string(name(dtype)) + " does not hold");
  return literal(b, s, dtype);
}

ValueId convert(ops::B& b, ValueId x, DType to) {
  if (b.ok() && is_float(to) && info(to).bits == 8 && b.dtype(x) != to) {
    // On x86 PyTorch saturates the type without infinities that has one NaN; else what is too large is infinity or NaN.
    const int64_t saturates = to == DType::F8E4M3FN ? 2 : 0;
    return b.op("cast_special", {is_float(b.dtype(x)) ? model_cast(b, x, compute_dtype(b.dtype(x))) : x},
                {{"to", to}, {"saturate", saturates}, {"round_mode", std::string("nearest")}});
  }
  if (!b.ok() || !is_float(b.dtype(x)) || !is_integer(to)) return model_cast(b, x, to);
  Attributes how = {{"to", to}, {"wraps", int64_t{1}}};
  if (computes_wider(b.dtype(x))) how.set("rounds", int64_t{1});
  return b.op("cast", {x}, std::move(how));
}

ValueId operand(ops::B& b, Arguments& in, std::string_view name, DType dtype) {
  return in.is_tensor(name) ? tensor_as(b, in, name, dtype) : literal(b, in.scalar(name), dtype);
}

ValueId exact_operand(ops::B& b, Arguments& in, std::string_view name, DType dtype) {
  return in.is_tensor(name) ? tensor_as(b, in, name, dtype) : exact_literal(b, in.scalar(name), dtype);
}

ValueId scaled(ops::B& b, Arguments& in, ValueId x, std::string_view name) {
  const Scalar s = in.scalar(name);
  if (!b.ok() || (s.is_constant() && s.number == 1)) return x;
  const DType stored = b.dtype(x);
  ValueId wide = widen(b, x);
  return cast(b, mul(b, wide, exact_literal(b, s, b.dtype(wide))), stored);
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
