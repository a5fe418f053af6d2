#include "runtime/cuda/cubin_resources.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <optional>
#include <span>

namespace tessera::cuda {
namespace {

// Section .nv.info: entries of a byte for the format, one for the attribute and two for a value, which with this format
// is the size of what follows: index of a function's symbol and a number, 32 bits each.
constexpr Elf64_Word kNvInfo = 0x70000000;
constexpr unsigned char kSized = 4, kFrameSize = 0x11, kRegisters = 0x2f;
struct Entry {
  unsigned char format, attribute;
  uint16_t size;
};
struct OfFunction {
  uint32_t symbol, number;
};

// Nothing where `bytes` ends before.
template <class T>
std::optional<T> read(std::span<const char> bytes, uint64_t at) {
  if (at > bytes.size() || sizeof(T) > bytes.size() - at) return std::nullopt;
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof(T));
  return out;
}

// The bytes of lines like ".local .align 4 .b8 __local_depot0[28];".
int declared_bytes(const std::string& ptx) {
  int64_t bytes = 0;
  for (size_t at = ptx.find(".local .align"); at != std::string::npos; at = ptx.find(".local .align", at + 1)) {
    const size_t open = ptx.find_first_of("[;\n", at);
    if (open != std::string::npos && ptx[open] == '[') bytes += (std::atoi(ptx.c_str() + open + 1) + 7) / 8 * 8;
  }
  return static_cast<int>(std::min<int64_t>(bytes, 1 << 24));
}

} // namespace

void read_missing_resources(const std::string& ptx, Cubin& cubin) {
  if (cubin.registers >= 0 && cubin.stack_bytes >= 0 && cubin.spill_bytes >= 0) return;
  const std::span<const char> bytes = cubin.bytes;
  const auto header = read<Elf64_Ehdr>(bytes, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_shentsize != sizeof(Elf64_Shdr))
    return;
  int registers = -1, stack = -1;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const auto section = read<Elf64_Shdr>(bytes, header->e_shoff + uint64_t{i} * sizeof(Elf64_Shdr));
    if (!section || section->sh_type != kNvInfo || section->sh_offset > bytes.size()) continue;
    const auto info =
        bytes.subspan(section->sh_offset, std::min<uint64_t>(section->sh_size, bytes.size() - section->sh_offset));
    for (uint64_t at = 0; const auto entry = read<Entry>(info, at);) {
      at += sizeof(Entry);
      if (entry->format != kSized) continue;
      const auto of = read<OfFunction>(info, at);
      at += entry->size;
      if (!of || entry->size != sizeof(OfFunction)) continue;
      int* into = entry->attribute == kRegisters ? &registers : entry->attribute == kFrameSize ? &stack : nullptr;
      if (into) *into = std::max(*into, static_cast<int>(std::min<uint32_t>(of->number, 1 << 24)));
    }
  }
  if (cubin.registers < 0) cubin.registers = registers;
  if (cubin.stack_bytes < 0) cubin.stack_bytes = stack;
  if (cubin.spill_bytes < 0 && stack >= 0) cubin.spill_bytes = std::max(0, stack - declared_bytes(ptx));
}

} // namespace tessera::cuda
