// Which file the bytes of a tensor come from, and giving their pages back.
#pragma once
#include "base/file.h"
#include <optional>
#include <string>
#include <vector>

namespace tessera {

// The mappings of this process that show an unmodified file: read-only, with a file behind them.
class MappedRegions {
public:
  static MappedRegions of_this_process();
  struct Place {
    std::string path;
    int64_t offset = 0;
  };
  // Which file shows [data, data + bytes), and where in it. Nothing when it is not wholly inside one such mapping.
  [[nodiscard]] std::optional<Place> find(const void* data, size_t bytes) const;
  // Gives back the whole pages inside; they are read from the file again if somebody touches them. Nothing happens to
  // memory that is not such a mapping. The caller keeps the mapping alive since before this object was made.
  void release(const void* data, size_t bytes) const;

private:
  struct Region {
    uintptr_t begin, end;
    int64_t offset;
    std::string path;
  };
  [[nodiscard]] const Region* containing(uintptr_t begin, uintptr_t end) const;
  std::vector<Region> regions_; // by address
};

} // namespace tessera
