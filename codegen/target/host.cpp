#include "codegen/target/host.h"
#include "base/file.h"
#include <charconv>
#include <unistd.h>

namespace tessera {
namespace {

// The size in a file of /sys: "32768K\n" is 32768 KB. 0 if there is no such file.
int64_t number_in(const std::string& path) {
  auto text = read_file(path);
  if (!text.ok()) return 0;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc()) return 0;
  const char unit = end < text->data() + text->size() ? *end : '\n';
  return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

} // namespace

void set_host_caches(Target& t) {
  const std::string cpu = "/sys/devices/system/cpu/cpu0/cache/index";
  const struct {
    int64_t Target::*field;
    int index, name; // of /sys; of sysconf, which counts the level-3 caches of all sockets and dies together
  } caches[] = {{&Target::l1_bytes, 0, _SC_LEVEL1_DCACHE_SIZE},
                {&Target::l2_bytes, 2, _SC_LEVEL2_CACHE_SIZE},
                {&Target::l3_bytes, 3, _SC_LEVEL3_CACHE_SIZE}};
  for (const auto& c : caches) {
    int64_t bytes = number_in(cpu + std::to_string(c.index) + "/size");
    if (bytes <= 0) bytes = ::sysconf(c.name);
    if (bytes > 0) t.*c.field = bytes;
  }
  if (const long line = ::sysconf(_SC_LEVEL1_DCACHE_LINESIZE); line > 0) t.line_bytes = line;
}

double cached_instructions(const Target& host) {
  constexpr double kInstructionBytes = 8; // of a vector instruction with an operand in memory
  return static_cast<double>(host.l1_bytes) / (kInstructionBytes * host.unroll);
}

} // namespace tessera
