// Objects of machine code with edits in their headers, symbols and relocations: loaded, never run. It ends in an error or
// in code; nothing outside of the object's bytes is read.
#include "driver.h"
#include "runtime/host_code.h"
#include <cstring>
#include <elf.h>
#include <random>

namespace {
// Words of an object's tables, a number or two of which an edit changes.
struct Table {
  size_t at, bytes;
};
std::vector<Table> tables(const uint8_t* data, size_t size) {
  std::vector<Table> all{{0, std::min(size, sizeof(Elf64_Ehdr))}};
  Elf64_Ehdr header{};
  if (size < sizeof header) return all;
  std::memcpy(&header, data, sizeof header);
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const size_t at = header.e_shoff + i * sizeof(Elf64_Shdr);
    if (at > size || size - at < sizeof(Elf64_Shdr)) break;
    Elf64_Shdr section{};
    std::memcpy(&section, data + at, sizeof section);
    all.push_back({at, sizeof section});
    const bool table = section.sh_type == SHT_RELA || section.sh_type == SHT_SYMTAB || section.sh_type == SHT_STRTAB;
    if (table && section.sh_offset <= size && section.sh_size <= size - section.sh_offset)
      all.push_back({section.sh_offset, section.sh_size});
  }
  return all;
}
} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t, unsigned int seed) {
  std::mt19937_64 rng(seed);
  if (size == 0) return size;
  const auto all = tables(data, size);
  for (size_t edits = 1 + rng() % 3; edits > 0; --edits) {
    const Table& t = all[rng() % all.size()];
    if (t.bytes == 0) continue;
    const size_t at = t.at + rng() % t.bytes, bytes = std::min<size_t>(size_t{1} << rng() % 4, size - at);
    uint64_t value = rng();
    if (const auto how = rng() % 4; how < 3)
      value = how == 0 ? rng() % 64 : how == 1 ? ~(rng() % 64) : size + rng() % 8;
    std::memcpy(data + at, &value, bytes);
  }
  return rng() % 16 == 0 ? rng() % size : size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::vector<char> exact(data, data + size); // of its own, so that the sanitizer sees its end
  const HostObject object{"powers", exact};
  auto code = HostCode::load({&object, 1});
  if (!code.ok()) TESSERA_CHECK(!code.error().message.empty(), "an error says something");
  return 0;
}
