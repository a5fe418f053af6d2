#include "runtime/cpu/red_zones.h"
#include <algorithm>
#include <cstring>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#endif

namespace tessera {
namespace {
constexpr std::byte kPattern{0xFB};
} // namespace

void RedZones::close(std::byte* begin, size_t bytes) {
  if (bytes > 0) closed_.push_back({begin, bytes});
}

void RedZones::allow(std::byte* begin, size_t bytes) {
  if (bytes > 0) allowed_.push_back({begin, bytes});
}

void RedZones::arm() {
  // A zone behind a smaller buffer is left out where a larger one had the memory: the bytes there are still the larger
  // one's.
  std::erase_if(zones_, [&](const std::byte* zone) {
    return std::any_of(allowed_.begin(), allowed_.end(),
                       [&](const Range& r) { return zone < r.begin + r.bytes && r.begin < zone + kBytes; });
  });
  for (std::byte* zone : zones_) std::memset(zone, static_cast<int>(kPattern), kBytes);
  for (const Range& r : closed_) ASAN_POISON_MEMORY_REGION(r.begin, r.bytes);
  for (const Range& r : allowed_) ASAN_UNPOISON_MEMORY_REGION(r.begin, r.bytes);
  for (std::byte* zone : zones_) ASAN_POISON_MEMORY_REGION(zone, kBytes);
}

Status RedZones::check(const std::string& name) {
  open();
  bool whole = std::all_of(zones_.begin(), zones_.end(), [](const std::byte* zone) {
    return std::all_of(zone, zone + kBytes, [](std::byte b) { return b == kPattern; });
  });
  clear();
  if (whole) return {};
  return Diagnostic(ErrorCode::Internal, "step '" + name + "' wrote outside of its buffers");
}

void RedZones::open() {
  for (const Range& r : closed_) ASAN_UNPOISON_MEMORY_REGION(r.begin, r.bytes);
  for (std::byte* zone : zones_) ASAN_UNPOISON_MEMORY_REGION(zone, kBytes);
}

void RedZones::clear() {
  open();
  zones_.clear();
  closed_.clear();
  allowed_.clear();
}

} // namespace tessera
