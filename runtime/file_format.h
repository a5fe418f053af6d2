// The executable file:
//
//   offset 0   magic "TESSEXE\n"                     8 bytes
//          8   format version                        u32
//         12   0                                     u32
//         16   bytes of the plan                     u64
//         24   bytes of the description of the code  u64
//         32   bytes that are hashed                 u64: plan, description, objects, and what lies between
//         40   bytes of the file                     u64
//         48   hash of these and of the header       128 bits
//         64   plan: JSON
//   then the description of the code: JSON; then, each at a multiple of 64: objects, embedded weights
//
// Little-endian. The hash is checked before anything else is read. The description says where objects lie and what each
// kernel's code needs (its contract, runtime/executable.h), in terms of parameters of its own; it belongs to the code.
// The plan has one or more variants of a model, the generic one first, which share objects, descriptions of kernels and
// weights. Each says which buffers and which sizes each launch gives to which kernel, and where weights lie; it is checked
// against the description (docs/runtime.md). Embedded weights are not hashed as a whole (loading maps them and reads
// nothing); samples of them are. Strings of a constant are a section, too (strings_section()).
#pragma once
#include "base/hash.h"
#include "base/tensor.h"
#include "symbols/expr.h"
#include <cstring>

namespace tessera::file {

inline constexpr char kMagic[8] = {'T', 'E', 'S', 'S', 'E', 'X', 'E', '\n'};
inline constexpr uint32_t kVersion = 15;
inline constexpr size_t kAlignment = 64;

struct Header {
  char magic[8];
  uint32_t version = kVersion, reserved = 0;
  uint64_t plan_bytes = 0, code_bytes = 0, hashed_bytes = 0, file_bytes = 0;
  Hash128 hash;
};
static_assert(sizeof(Header) == 64);

inline size_t aligned(size_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

// Header::hash of a header that is complete otherwise; `body`: the bytes behind it that are hashed.
inline Hash128 contents_hash(const Header& header, std::string_view body) {
  Hash128 head = hash128(&header, offsetof(Header, hash));
  Hash128 h = hash128(body.data(), body.size(), head.lo);
  return {hash_combine(head.lo, h.lo), hash_combine(head.hi, h.hi)};
}

// The parameter in the place of a launch's symbol in a contract: p0, p1 and so on, the same ones throughout the
// process.
[[nodiscard]] SymExpr parameter(size_t index);

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

// Strings as a section: where each ends, as u64 from the end of this table on, then their bytes.
inline std::string strings_section(const std::vector<std::string>& strings) {
  std::string out, bytes;
  for (const std::string& s : strings) {
    bytes += s;
    const uint64_t end = bytes.size();
    out.append(reinterpret_cast<const char*>(&end), sizeof end);
  }
  return out + bytes;
}

} // namespace tessera::file
