#include "runtime/library/widen.h"
#include "base/check.h"
#include <bit>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera {
namespace {

void widen_f16(float* to, const uint16_t* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = f16_to_f32(from[i]);
}

void widen_bf16(float* to, const uint16_t* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i]) << 16);
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void widen_f16_by_8(float* to, const uint16_t* from, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  widen_f16(to + i, from + i, count - i);
}
bool converts_in_hardware() {
  static const bool yes = __builtin_cpu_supports("avx") != 0 && __builtin_cpu_supports("f16c") != 0;
  return yes;
}
#endif

} // namespace

void widen(float* to, const uint16_t* from, int64_t count, DType dtype) {
  if (dtype == DType::BF16) return widen_bf16(to, from, count);
  TESSERA_CHECK(dtype == DType::F16, "only half precision is widened");
#if defined(__x86_64__)
  if (converts_in_hardware()) return widen_f16_by_8(to, from, count);
#endif
  widen_f16(to, from, count);
}

} // namespace tessera
