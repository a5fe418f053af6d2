#include "base/dtype.h"
#include "base/check.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace tessera {
namespace {
using K = DTypeKind;
constexpr std::array<DTypeInfo, kDTypeCount> kTypes = {{
    {DType::Bool, "bool", 8, K::Bool, 9, "|b1"},
    {DType::I8, "i8", 8, K::Signed, 3, "|i1"},
    {DType::I16, "i16", 16, K::Signed, 5, "<i2"},
    {DType::I32, "i32", 32, K::Signed, 6, "<i4"},
    {DType::I64, "i64", 64, K::Signed, 7, "<i8"},
    {DType::U8, "u8", 8, K::Unsigned, 2, "|u1"},
    {DType::U16, "u16", 16, K::Unsigned, 4, "<u2"},
    {DType::U32, "u32", 32, K::Unsigned, 12, "<u4"},
    {DType::U64, "u64", 64, K::Unsigned, 13, "<u8"},
    {DType::F16, "f16", 16, K::Float, 10, "<f2"},
    {DType::BF16, "bf16", 16, K::Float, 16, ""},
    {DType::F32, "f32", 32, K::Float, 1, "<f4"},
    {DType::F64, "f64", 64, K::Float, 11, "<f8"},
    {DType::F8E4M3FN, "f8e4m3fn", 8, K::Float, 17, ""},
    {DType::F8E4M3FNUZ, "f8e4m3fnuz", 8, K::Float, 18, ""},
    {DType::F8E5M2, "f8e5m2", 8, K::Float, 19, ""},
    {DType::F8E5M2FNUZ, "f8e5m2fnuz", 8, K::Float, 20, ""},
    {DType::F8E8M0, "f8e8m0", 8, K::Float, 24, ""},
    {DType::I4, "i4", 4, K::Signed, 22, ""},
    {DType::U4, "u4", 4, K::Unsigned, 21, ""},
    {DType::I2, "i2", 2, K::Signed, 26, ""},
    {DType::U2, "u2", 2, K::Unsigned, 25, ""},
    {DType::F4E2M1, "f4e2m1", 4, K::Float, 23, ""},
    {DType::C64, "c64", 64, K::Complex, 14, "<c8"},
    {DType::C128, "c128", 128, K::Complex, 15, "<c16"},
    {DType::String, "string", 0, K::Held, 8, ""},
    {DType::List, "list", 0, K::Held, -1, ""},
}};
constexpr bool table_is_in_order() {
  for (size_t i = 0; i < kTypes.size(); ++i)
    if (static_cast<size_t>(kTypes[i].dtype) != i) return false;
  return true;
}
static_assert(table_is_in_order(), "one row for each DType, in order");

// The layout of a float format of at most 16 bits. value = (-1)^s * 2^(e - bias) * 1.m, subnormal when e is 0.
struct Format {
  int exponent_bits, mantissa_bits, bias;
  uint32_t max_finite; // largest finite magnitude's code
  int32_t inf;         // code of infinity, -1: the format has none
  int32_t nan;         // code of NaN, -1: none
  bool unsigned_zero;  // no -0 (its code is the NaN)
};
constexpr Format kF16 = {5, 10, 15, 0x7bff, 0x7c00, 0x7e00, false};
constexpr Format kBF16 = {8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, false};
constexpr Format kE4M3FN = {4, 3, 7, 0x7e, -1, 0x7f, false};
constexpr Format kE4M3FNUZ = {4, 3, 8, 0x7f, -1, 0x80, true};
constexpr Format kE5M2 = {5, 2, 15, 0x7b, 0x7c, 0x7e, false};
constexpr Format kE5M2FNUZ = {5, 2, 16, 0x7f, -1, 0x80, true};
constexpr Format kE2M1 = {2, 1, 1, 0x7, -1, -1, false};

const Format& format_of(DType d) {
  switch (d) {
  case DType::F8E4M3FN: return kE4M3FN;
  case DType::F8E4M3FNUZ: return kE4M3FNUZ;
  case DType::F8E5M2: return kE5M2;
  case DType::F8E5M2FNUZ: return kE5M2FNUZ;
  case DType::F4E2M1: return kE2M1;
  default: TESSERA_UNREACHABLE("no small float: " + std::string(name(d)));
  }
}

// Integer-valued double nearest to x >= 0, ties to even; independent of the rounding mode.
double round_even(double x) {
  double f = std::floor(x), d = x - f;
  return d > 0.5 || (d == 0.5 && std::fmod(f, 2.0) != 0) ? f + 1 : f;
}

uint32_t encode(const Format& fmt, double x, bool saturate) {
  const uint32_t sign = std::signbit(x) ? 1u << (fmt.exponent_bits + fmt.mantissa_bits) : 0;
  if (std::isnan(x)) {
    if (fmt.nan < 0) return 1u << (fmt.exponent_bits + fmt.mantissa_bits); // -0, as ml_dtypes has it
    return static_cast<uint32_t>(fmt.nan) | (fmt.unsigned_zero ? 0 : sign);
  }
  const double a = std::fabs(x);
  uint32_t code = fmt.max_finite + 1;
  if (!std::isinf(a)) {
    int exponent = 0;
    if (a != 0) std::frexp(a, &exponent);
    const int lowest = 1 - fmt.bias; // exponent of the smallest normal number and of all subnormals
    const int e = a == 0 ? lowest : std::max(exponent - 1, lowest);
    if (e - lowest < (1 << fmt.exponent_bits)) {
      double units = round_even(std::ldexp(a, fmt.mantissa_bits - e));
      // The hidden bit of `units` carries into the exponent field: this is right for subnormals and for rounding up
      // alike.
      code = (static_cast<uint32_t>(e - lowest) << fmt.mantissa_bits) + static_cast<uint32_t>(units);
    }
  }
  if (code == 0) return fmt.unsigned_zero ? 0 : sign;
  if (code <= fmt.max_finite) return code | sign;
  if (saturate || fmt.nan < 0) return fmt.max_finite | sign;
  if (fmt.inf >= 0) return static_cast<uint32_t>(fmt.inf) | sign;
  return static_cast<uint32_t>(fmt.nan) | (fmt.unsigned_zero ? 0 : sign);
}

double decode(const Format& fmt, uint32_t bits) {
  const uint32_t sign_bit = 1u << (fmt.exponent_bits + fmt.mantissa_bits);
  const bool negative = bits & sign_bit;
  const uint32_t code = bits & (sign_bit - 1);
  if (fmt.unsigned_zero && bits == sign_bit) return std::numeric_limits<double>::quiet_NaN();
  if (fmt.inf >= 0 && code == static_cast<uint32_t>(fmt.inf)) return negative ? -INFINITY : INFINITY;
  if (code > fmt.max_finite) return std::copysign(std::numeric_limits<double>::quiet_NaN(), negative ? -1.0 : 1.0);
  const int e = static_cast<int>(code >> fmt.mantissa_bits);
  double m = code & ((1u << fmt.mantissa_bits) - 1);
  if (e > 0) m += 1 << fmt.mantissa_bits;
  double v = std::ldexp(m, std::max(e, 1) - fmt.bias - fmt.mantissa_bits);
  return negative ? -v : v;
}
} // namespace

const DTypeInfo& info(DType dtype) {
  size_t i = static_cast<size_t>(dtype);
  TESSERA_CHECK(i < kTypes.size(), "dtype out of range");
  return kTypes[i];
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& t : kTypes)
    if (t.name == name) return t.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_onnx(int number) {
  for (const DTypeInfo& t : kTypes)
    if (t.onnx == number) return t.dtype;
  return std::nullopt;
}

uint16_t f32_to_f16(float x) {
  uint32_t b = std::bit_cast<uint32_t>(x);
  uint32_t sign = (b >> 16) & 0x8000u;
  b &= 0x7fffffffu;
  if (b > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((b >> 13) & 0x3ffu));
  if (b >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u); // 65536 and above
  if (b < 0x38800000u) { // subnormal: let the FPU align the mantissa at 2^-24
    float aligned = std::bit_cast<float>(b) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  uint32_t odd = (b >> 13) & 1;
  return static_cast<uint16_t>(sign | ((b - 0x38000000u + 0xfffu + odd) >> 13));
}

float f16_to_f32(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, e = (bits >> 10) & 31u, m = bits & 0x3ffu;
  if (e == 31) return std::bit_cast<float>(sign | 0x7f800000u | (m << 13));
  if (e == 0) {
    float v = static_cast<float>(m) * 0x1p-24f;
    return sign ? -v : v;
  }
  return std::bit_cast<float>(sign | ((e + 112) << 23) | (m << 13));
}

uint16_t f32_to_bf16(float x) {
  uint32_t b = std::bit_cast<uint32_t>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((b >> 16) | 0x40u);
  return static_cast<uint16_t>((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f64_to_f16(double x) { return static_cast<uint16_t>(encode(kF16, x, false)); }
uint16_t f64_to_bf16(double x) { return static_cast<uint16_t>(encode(kBF16, x, false)); }

float small_float_to_f32(DType d, uint8_t bits) {
  if (d == DType::F8E8M0) return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, bits - 127);
  if (d == DType::F4E2M1) bits &= 0xf;
  return static_cast<float>(decode(format_of(d), bits));
}

uint8_t f64_to_e8m0(double x, E8M0Rounding rounding, bool saturate) {
  // There is no sign and no zero: what is not above zero becomes the smallest power.
  constexpr uint8_t kNan = 0xff, kMax = 0xfe;
  if (std::isnan(x)) return kNan;
  if (!(x > 0)) return saturate ? 0 : kNan;
  if (std::isinf(x)) return saturate ? kMax : kNan;
  int e = 0;
  double m = std::frexp(x, &e) * 2; // [1, 2)
  --e;
  if (rounding == E8M0Rounding::Up ? m > 1 : rounding == E8M0Rounding::Nearest && m >= 1.5) ++e;
  if (e > 127) return saturate ? kMax : kNan;
  if (e < -127) return saturate ? 0 : kNan;
  return static_cast<uint8_t>(e + 127);
}

uint8_t f64_to_small_float(DType d, double x, bool saturate) {
  if (d == DType::F8E8M0) return f64_to_e8m0(x, E8M0Rounding::Nearest, saturate);
  return static_cast<uint8_t>(encode(format_of(d), x, saturate));
}
uint8_t f32_to_small_float(DType d, float x, bool saturate) { return f64_to_small_float(d, x, saturate); }

int64_t f64_to_i64(double x) {
  if (std::isnan(x)) return 0;
  if (x >= 0x1p63) return std::numeric_limits<int64_t>::max();
  if (x <= -0x1p63) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(x);
}

} // namespace tessera
