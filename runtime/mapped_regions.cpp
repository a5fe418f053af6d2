#include "runtime/mapped_regions.h"
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <sstream>

namespace tessera {

MappedRegions MappedRegions::of_this_process() {
  MappedRegions out;
  auto maps = read_file("/proc/self/maps");
  if (!maps.ok()) return out; // no /proc: nothing is known, nothing is released
  std::istringstream lines(std::move(*maps));
  for (std::string line; std::getline(lines, line);) {
    uint64_t begin = 0, end = 0, offset = 0, inode = 0;
    char rights[5] = {};
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %" SCNu64 " %n", &begin, &end, rights,
                    &offset, &inode, &path_at) < 5)
      continue;
    if (inode == 0 || rights[0] != 'r' || rights[1] != '-') continue;
    std::string path = line.substr(static_cast<size_t>(path_at));
    if (path.empty() || path[0] != '/') continue;
    if (!out.regions_.empty()) { // neighbouring pieces of one mapping
      auto& last = out.regions_.back();
      if (last.end == begin && last.path == path &&
          last.offset + static_cast<int64_t>(last.end - last.begin) == static_cast<int64_t>(offset)) {
        last.end = end;
        continue;
      }
    }
    out.regions_.push_back({begin, end, static_cast<int64_t>(offset), std::move(path)});
  }
  return out;
}

const MappedRegions::Region* MappedRegions::containing(uintptr_t begin, uintptr_t end) const {
  auto it = std::upper_bound(regions_.begin(), regions_.end(), begin,
                             [](uintptr_t a, const Region& r) { return a < r.begin; });
  if (it == regions_.begin()) return nullptr;
  --it;
  return end <= it->end ? &*it : nullptr;
}

std::optional<MappedRegions::Place> MappedRegions::find(const void* data, size_t bytes) const {
  auto at = reinterpret_cast<uintptr_t>(data);
  const auto* r = containing(at, at + bytes);
  if (!r || bytes == 0) return std::nullopt;
  return Place{r->path, r->offset + static_cast<int64_t>(at - r->begin)};
}

void MappedRegions::release(const void* data, size_t bytes) const {
  auto at = reinterpret_cast<uintptr_t>(data);
  if (bytes == 0 || !containing(at, at + bytes)) return;
  drop_pages(data, bytes);
}

} // namespace tessera
