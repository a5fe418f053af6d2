#include "runtime/mapped_file.h"
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera {

Result<Storage> map_file(const std::string& path) {
  auto failed = [&](const char* what) {
    return Diagnostic(ErrorCode::FileError, std::string("cannot ") + what + " '" + path + "': " + std::strerror(errno));
  };
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open");
  struct stat st {};
  if (::fstat(fd, &st) != 0) {
    auto d = failed("examine");
    ::close(fd);
    return d;
  }
  if (!S_ISREG(st.st_mode)) {
    ::close(fd);
    return Diagnostic(ErrorCode::FileError, "cannot read '" + path + "': not a regular file");
  }
  auto bytes = static_cast<size_t>(st.st_size);
  if (bytes == 0) {
    ::close(fd);
    return Storage{};
  }
  void* p = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  auto error = failed("map");
  ::close(fd);
  if (p == MAP_FAILED) return error;
  std::shared_ptr<const void> owner(p, [bytes](const void* m) { ::munmap(const_cast<void*>(m), bytes); });
  return Storage{std::move(owner), static_cast<const std::byte*>(p), bytes};
}

MappedRegions MappedRegions::of_this_process() {
  MappedRegions out;
  std::FILE* f = std::fopen("/proc/self/maps", "re");
  if (!f) return out; // no /proc: nothing is known, nothing is released
  char* line = nullptr;
  size_t capacity = 0;
  while (::getline(&line, &capacity, f) > 0) {
    uint64_t begin = 0, end = 0, offset = 0, inode = 0;
    char rights[5] = {};
    int path_at = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %" SCNu64 " %n", &begin, &end, rights, &offset,
                    &inode, &path_at) < 5)
      continue;
    if (inode == 0 || rights[0] != 'r' || rights[1] != '-') continue;
    std::string path(line + path_at);
    while (!path.empty() && path.back() == '\n') path.pop_back();
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
  std::free(line);
  std::fclose(f);
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
  auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  uintptr_t begin = (at + page - 1) / page * page, end = (at + bytes) / page * page;
  if (begin < end)
    (void)::madvise(reinterpret_cast<void*>(begin), end - begin,
                    MADV_DONTNEED); // advice: refusal costs memory, nothing else
}

} // namespace tessera
