// The executable file:
//
//   offset 0   magic "TESSEXE\n"            8 bytes
//          8   format version               u32
//         12   0                            u32
//         16   bytes of the plan            u64
//         24   bytes of the file            u64
//         32   hash of plan and objects     128 bits
//         48   plan: JSON, at most kMaxPlan
//   then, each at a multiple of 64: objects, embedded weights; the plan says where
//
// Little-endian. The plan is checked by its hash before it is parsed, and every index in it before it is used. Embedded
// weights are not hashed as a whole (loading maps them and reads nothing); samples of them are.
#pragma once
#include "graph/support/hash.h"
#include "graph/support/tensor.h"
#include <cstring>

namespace tessera::file {

inline constexpr char kMagic[8] = {'T', 'E', 'S', 'S', 'E', 'X', 'E', '\n'};
inline constexpr uint32_t kVersion = 5;
inline constexpr size_t kAlignment = 64;
inline constexpr uint64_t kMaxPlan = uint64_t{1} << 32;

struct Header {
  char magic[8];
  uint32_t version = kVersion, reserved = 0;
  uint64_t plan_bytes = 0, file_bytes = 0;
  Hash128 hash;
};
static_assert(sizeof(Header) == 48);

inline size_t aligned(size_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

// A hash of size, head, tail and some places between: notices another file, not every changed bit.
inline Hash128 sample_hash(const std::byte* data, size_t bytes) {
  constexpr size_t kSample = 4096, kPlaces = 8;
  Hash128 h = hash128(data, std::min(bytes, kSample), bytes);
  for (size_t i = 1; i <= kPlaces && bytes > kSample; ++i) {
    size_t at = (bytes - kSample) / kPlaces * i;
    Hash128 next = hash128(data + at, kSample, h.lo);
    h = {hash_combine(h.lo, next.lo), hash_combine(h.hi, next.hi)};
  }
  return h;
}

} // namespace tessera::file
