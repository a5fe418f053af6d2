#include "base/hash.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera {

Hash128 hash128(const void* data, size_t bytes, uint64_t seed) {
  XXH128_hash_t h = XXH3_128bits_withSeed(data, bytes, seed);
  return {h.low64, h.high64};
}

std::string Hash128::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(32, '0');
  for (int i = 0; i < 16; ++i) {
    out[static_cast<size_t>(15 - i)] = kDigits[(hi >> (4 * i)) & 15];
    out[static_cast<size_t>(31 - i)] = kDigits[(lo >> (4 * i)) & 15];
  }
  return out;
}

} // namespace tessera
