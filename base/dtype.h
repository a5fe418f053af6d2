// Element types: every ONNX numeric type, with room for fp8 and 4-bit. One table (dtype.cpp) holds all facts.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class DType : uint8_t {
  Bool,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  F16,
  BF16,
  F32,
  F64,
  F8E4M3FN,
  F8E4M3FNUZ,
  F8E5M2,
  F8E5M2FNUZ,
  F8E8M0,
  I4,
  U4,
  I2,
  U2,
  F4E2M1,
  C64,
  C128,
  String,
  List, // a sequence, an optional or a map: its elements are tensors
};
inline constexpr int kDTypeCount = static_cast<int>(DType::List) + 1;

enum class DTypeKind : uint8_t { Bool, Signed, Unsigned, Float, Complex, Held /* String, List */ };

struct DTypeInfo {
  DType dtype;
  std::string_view name; // "f16", "bf16", "i64", "bool": what the text forms print
  int bits;              // storage bits of one element (4 and 2 for packed types); 0 for String and List
  DTypeKind kind;
  int onnx;               // TensorProto.DataType number
  std::string_view numpy; // ".npy" descr ("<f4"), empty where numpy has none
};
[[nodiscard]] const DTypeInfo& info(DType dtype);
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name);
[[nodiscard]] std::optional<DType> dtype_from_onnx(int number);

[[nodiscard]] inline std::string_view name(DType d) { return info(d).name; }
// False for String and List: values that only the host holds, as objects.
[[nodiscard]] inline bool has_bytes(DType d) { return info(d).bits > 0; }
[[nodiscard]] inline bool is_float(DType d) { return info(d).kind == DTypeKind::Float; }
[[nodiscard]] inline bool is_integer(DType d) {
  auto k = info(d).kind;
  return k == DTypeKind::Signed || k == DTypeKind::Unsigned;
}
// Bytes of n elements, packed types rounded up to whole bytes.
[[nodiscard]] inline int64_t byte_size(DType d, int64_t n) { return (n * info(d).bits + 7) / 8; }

// Scalar conversions, round to nearest even, NaN and infinity kept.
[[nodiscard]] uint16_t f32_to_f16(float x);
[[nodiscard]] float f16_to_f32(uint16_t bits);
[[nodiscard]] uint16_t f32_to_bf16(float x);
[[nodiscard]] float bf16_to_f32(uint16_t bits);
// Any 8-bit or 4-bit float format to f32 and back (saturating as ONNX's Cast does when `saturate`).
[[nodiscard]] float small_float_to_f32(DType d, uint8_t bits);
[[nodiscard]] uint8_t f32_to_small_float(DType d, float x, bool saturate = true);
// The same from f64, rounded once: f64 -> f32 -> f16 could round twice.
[[nodiscard]] uint16_t f64_to_f16(double x);
[[nodiscard]] uint16_t f64_to_bf16(double x);
[[nodiscard]] uint8_t f64_to_small_float(DType d, double x, bool saturate = true);
// F8E8M0 has neither sign nor mantissa; ONNX lets the user choose how values between powers of two round.
enum class E8M0Rounding : uint8_t { Nearest, Up, Down };
[[nodiscard]] uint8_t f64_to_e8m0(double x, E8M0Rounding rounding, bool saturate = true);
// f64 to i64 towards zero, saturating; NaN is 0.
[[nodiscard]] int64_t f64_to_i64(double x);

} // namespace tessera
