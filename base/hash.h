// Content hashes (XXH3, 128 bits) for caches and deterministic keys.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

struct Hash128 {
  uint64_t lo = 0, hi = 0;
  bool operator==(const Hash128&) const = default;
  auto operator<=>(const Hash128&) const = default;
  [[nodiscard]] std::string hex() const; // 32 lower-case digits
};
[[nodiscard]] Hash128 hash128(const void* data, size_t bytes, uint64_t seed = 0);
[[nodiscard]] inline Hash128 hash128(std::string_view text, uint64_t seed = 0) {
  return hash128(text.data(), text.size(), seed);
}
[[nodiscard]] inline uint64_t hash_combine(uint64_t a, uint64_t b) {
  uint64_t x = a ^ (b + 0x9e3779b97f4a7c15ull + (a << 6) + (a >> 2));
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9ull;
  return x ^ (x >> 29);
}

} // namespace tessera
