// The arithmetic of scalar operators, in exactly their dtype: what every other interpretation must agree with.
#include "base/check.h"
#include "graph/scalar/scalar.h"
#include <bit>
#include <cmath>
#include <limits>

namespace tessera {

namespace {

// f64 -> f32 rounded to odd: a second rounding to a narrower type then gives what one direct rounding would.
float to_f32_round_odd(double x) {
  float f = static_cast<float>(x);
  if (std::isnan(x) || std::isinf(f) || static_cast<double>(f) == x) return f;
  // Step back to the neighbour nearer to zero when rounding went away from zero, then set the last bit.
  auto bits = std::bit_cast<uint32_t>(f);
  if (std::fabs(static_cast<double>(f)) > std::fabs(x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

double round_to(DType dtype, double x) {
  switch (dtype) {
  case DType::F64: return x;
  case DType::F32: return static_cast<double>(static_cast<float>(x));
  case DType::F16: return static_cast<double>(f16_to_f32(f32_to_f16(to_f32_round_odd(x))));
  case DType::BF16: return static_cast<double>(bf16_to_f32(f32_to_bf16(to_f32_round_odd(x))));
  default: return static_cast<double>(small_float_to_f32(dtype, f32_to_small_float(dtype, to_f32_round_odd(x))));
  }
}

// Wraps to the width of an integer dtype; u64 keeps its bits, bool is 0 or 1.
int64_t wrap(DType dtype, uint64_t bits) {
  const DTypeInfo& d = info(dtype);
  if (d.kind == DTypeKind::Bool) return bits != 0;
  if (d.bits >= 64) return static_cast<int64_t>(bits);
  int shift = 64 - d.bits;
  if (d.kind == DTypeKind::Signed) return static_cast<int64_t>(bits << shift) >> shift;
  return static_cast<int64_t>((bits << shift) >> shift);
}

// float -> integer: truncates, saturates, NaN -> 0.
int64_t saturate(DType dtype, double x) {
  const DTypeInfo& d = info(dtype);
  if (d.kind == DTypeKind::Bool) return x != 0; // NaN is true
  if (std::isnan(x)) return 0;
  x = std::trunc(x);
  bool is_signed = d.kind == DTypeKind::Signed;
  double lowest = is_signed ? -std::ldexp(1.0, d.bits - 1) : 0.0;
  double above = std::ldexp(1.0, is_signed ? d.bits - 1 : d.bits); // one more than the greatest, exact
  if (x <= lowest) return is_signed ? static_cast<int64_t>(lowest) : 0;
  if (x >= above)
    return is_signed ? static_cast<int64_t>((uint64_t{1} << (d.bits - 1)) - 1)
                     : (d.bits >= 64 ? -1 : static_cast<int64_t>((uint64_t{1} << d.bits) - 1));
  return is_signed ? static_cast<int64_t>(x) : static_cast<int64_t>(static_cast<uint64_t>(x));
}

template <class T>
T float_op(ScalarOp op, T a, T b, T c) {
  switch (op) {
  case ScalarOp::Neg: return -a;
  case ScalarOp::Abs: return std::fabs(a);
  case ScalarOp::Sign: return a > 0 ? T(1) : a < 0 ? T(-1) : std::isnan(a) ? a : T(0); // NaN stays NaN
  case ScalarOp::Floor: return std::floor(a);
  case ScalarOp::Ceil: return std::ceil(a);
  case ScalarOp::Round: return std::nearbyint(a);
  case ScalarOp::Trunc: return std::trunc(a);
  case ScalarOp::Sqrt: return std::sqrt(a);
  case ScalarOp::Rsqrt: return T(1) / std::sqrt(a);
  case ScalarOp::Reciprocal: return T(1) / a;
  case ScalarOp::Exp: return std::exp(a);
  case ScalarOp::Exp2: return std::exp2(a);
  case ScalarOp::Expm1: return std::expm1(a);
  case ScalarOp::Log: return std::log(a);
  case ScalarOp::Log2: return std::log2(a);
  case ScalarOp::Log1p: return std::log1p(a);
  case ScalarOp::Sin: return std::sin(a);
  case ScalarOp::Cos: return std::cos(a);
  case ScalarOp::Tan: return std::tan(a);
  case ScalarOp::Asin: return std::asin(a);
  case ScalarOp::Acos: return std::acos(a);
  case ScalarOp::Atan: return std::atan(a);
  case ScalarOp::Sinh: return std::sinh(a);
  case ScalarOp::Cosh: return std::cosh(a);
  case ScalarOp::Tanh: return std::tanh(a);
  case ScalarOp::Asinh: return std::asinh(a);
  case ScalarOp::Acosh: return std::acosh(a);
  case ScalarOp::Atanh: return std::atanh(a);
  case ScalarOp::Erf: return std::erf(a);
  case ScalarOp::Sigmoid: return T(1) / (T(1) + std::exp(-a));
  case ScalarOp::Add: return a + b;
  case ScalarOp::Sub: return a - b;
  case ScalarOp::Mul: return a * b;
  case ScalarOp::Div: return a / b;
  case ScalarOp::Mod: {
    T r = std::fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
  case ScalarOp::Fmod: return std::fmod(a, b);
  case ScalarOp::Pow: return std::pow(a, b);
  case ScalarOp::Min: return std::isnan(a) ? a : std::isnan(b) ? b : (a < b ? a : b);
  case ScalarOp::Max: return std::isnan(a) ? a : std::isnan(b) ? b : (a > b ? a : b);
  case ScalarOp::Fma: return std::fma(a, b, c);
  default: break;
  }
  TESSERA_UNREACHABLE("scalar operator " + std::string(info(op).name) + " on floats");
}

uint64_t int_pow(uint64_t base, int64_t exponent, bool is_signed) {
  if (is_signed && exponent < 0) {
    auto b = static_cast<int64_t>(base);
    if (b == 1) return 1;
    if (b == -1) return exponent % 2 == 0 ? 1 : ~uint64_t{0};
    return 0;
  }
  uint64_t result = 1;
  for (auto e = static_cast<uint64_t>(exponent); e != 0; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return result;
}

// On integers of `dtype`, already sign- or zero-extended to 64 bits. The caller wraps the result to the width.
uint64_t int_op(ScalarOp op, DType dtype, int64_t a, int64_t b, int64_t c) {
  bool is_signed = info(dtype).kind == DTypeKind::Signed;
  int bits = info(dtype).bits;
  auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b), uc = static_cast<uint64_t>(c);
  bool less = is_signed ? a < b : ua < ub;
  switch (op) {
  case ScalarOp::Neg: return uint64_t{0} - ua;
  case ScalarOp::Abs: return is_signed && a < 0 ? uint64_t{0} - ua : ua;
  case ScalarOp::Sign: return a == 0 ? 0 : is_signed && a < 0 ? ~uint64_t{0} : 1;
  case ScalarOp::Floor:
  case ScalarOp::Ceil:
  case ScalarOp::Round:
  case ScalarOp::Trunc: return ua;
  case ScalarOp::Not: return dtype == DType::Bool ? (a == 0) : ~ua;
  case ScalarOp::Add: return ua + ub;
  case ScalarOp::Sub: return ua - ub;
  case ScalarOp::Mul: return ua * ub;
  case ScalarOp::Div:
    if (b == 0) return 0;
    if (!is_signed) return ua / ub;
    return b == -1 ? uint64_t{0} - ua : static_cast<uint64_t>(a / b); // lowest / -1 wraps
  case ScalarOp::Mod: {
    if (b == 0) return 0;
    if (!is_signed) return ua % ub;
    if (b == -1) return 0;
    int64_t r = a % b;
    return static_cast<uint64_t>(r != 0 && (r < 0) != (b < 0) ? r + b : r);
  }
  case ScalarOp::Fmod:
    if (b == 0 || (is_signed && b == -1)) return 0;
    return is_signed ? static_cast<uint64_t>(a % b) : ua % ub;
  case ScalarOp::Pow: return int_pow(ua, b, is_signed);
  case ScalarOp::Min: return less ? ua : ub;
  case ScalarOp::Max: return less ? ub : ua;
  case ScalarOp::And: return ua & ub;
  case ScalarOp::Or: return ua | ub;
  case ScalarOp::Xor: return ua ^ ub;
  case ScalarOp::Shl: return ub >= static_cast<uint64_t>(bits) ? 0 : ua << ub;
  case ScalarOp::Shr:
    if (ub >= static_cast<uint64_t>(bits)) return is_signed && a < 0 ? ~uint64_t{0} : 0;
    return is_signed ? static_cast<uint64_t>(a >> ub) : ua >> ub;
  case ScalarOp::Fma: return ua * ub + uc;
  default: break;
  }
  // Functions without an integer meaning of their own go through f64: exp, sqrt, erf ... of integers.
  auto real = [&](int64_t v) {
    return is_signed ? static_cast<double>(v) : static_cast<double>(static_cast<uint64_t>(v));
  };
  return static_cast<uint64_t>(saturate(dtype, float_op<double>(op, real(a), real(b), real(c))));
}

template <class T>
bool compare_op(ScalarOp op, T a, T b) {
  switch (op) {
  case ScalarOp::Eq: return a == b;
  case ScalarOp::Ne: return a != b;
  case ScalarOp::Lt: return a < b;
  case ScalarOp::Le: return a <= b;
  case ScalarOp::Gt: return a > b;
  case ScalarOp::Ge: return a >= b;
  default: TESSERA_UNREACHABLE("not a comparison");
  }
}

// An integer in f64, rounded to odd, so that rounding on to a narrower float is the same as rounding once.
double integer_to_f64_odd(DType from, int64_t v) {
  bool negative = from != DType::U64 && v < 0;
  uint64_t magnitude = negative ? uint64_t{0} - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  if (magnitude >= uint64_t{1} << 53) magnitude = (magnitude >> 11 << 11) | ((magnitude & 0x7ff) != 0 ? 1u << 11 : 0u);
  auto x = static_cast<double>(magnitude);
  return negative ? -x : x;
}

ScalarValue cast_value(DType to, DType from, ScalarValue v) {
  ScalarValue r;
  if (!is_float(to))
    r.i = is_float(from) ? saturate(to, v.f) : wrap(to, static_cast<uint64_t>(v.i));
  else if (is_float(from))
    r.f = round_to(to, v.f);
  else if (to == DType::F64)
    r.f = from == DType::U64 ? static_cast<double>(static_cast<uint64_t>(v.i)) : static_cast<double>(v.i);
  else
    r.f = round_to(to, integer_to_f64_odd(from, v.i));
  return r;
}

// The bits of a number of 32 or 64 bits as another one's.
ScalarValue bitcast_value(DType to, DType from, ScalarValue v) {
  uint64_t bits = from == DType::F64   ? std::bit_cast<uint64_t>(v.f)
                  : from == DType::F32 ? std::bit_cast<uint32_t>(static_cast<float>(v.f))
                                       : static_cast<uint64_t>(v.i);
  ScalarValue r;
  if (to == DType::F64)
    r.f = std::bit_cast<double>(bits);
  else if (to == DType::F32)
    r.f = static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  else
    r.i = wrap(to, bits);
  return r;
}

} // namespace

ScalarValue eval_scalar(ScalarOp op, DType result, DType argument, std::span<const ScalarValue> args) {
  const ScalarValue zero;
  const ScalarValue &a = args.empty() ? zero : args[0], &b = args.size() > 1 ? args[1] : zero,
                    &c = args.size() > 2 ? args[2] : zero;
  ScalarValue r;
  switch (op) {
  case ScalarOp::Cast: return cast_value(result, argument, a);
  case ScalarOp::Bitcast: return bitcast_value(result, argument, a);
  case ScalarOp::Select: return a.i != 0 ? b : c;
  case ScalarOp::IsNan: r.i = is_float(argument) && std::isnan(a.f); return r;
  case ScalarOp::IsInf: r.i = is_float(argument) && std::isinf(a.f); return r;
  case ScalarOp::Eq:
  case ScalarOp::Ne:
  case ScalarOp::Lt:
  case ScalarOp::Le:
  case ScalarOp::Gt:
  case ScalarOp::Ge:
    if (is_float(argument))
      r.i = compare_op(op, a.f, b.f);
    else if (argument == DType::U64)
      r.i = compare_op(op, static_cast<uint64_t>(a.i), static_cast<uint64_t>(b.i));
    else
      r.i = compare_op(op, a.i, b.i);
    return r;
  default: break;
  }
  if (result == DType::F64)
    r.f = float_op<double>(op, a.f, b.f, c.f);
  else if (is_float(result))
    r.f = round_to(result, static_cast<double>(float_op<float>(op, static_cast<float>(a.f), static_cast<float>(b.f),
                                                               static_cast<float>(c.f))));
  else
    r.i = wrap(result, int_op(op, result, a.i, b.i, c.i));
  return r;
}

} // namespace tessera
