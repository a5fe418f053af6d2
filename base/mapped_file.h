// Files that are mapped: what a model needs of them is read when it is needed, so a file that is written in place meanwhile
// would give other values, and one that is cut off would end the process by SIGBUS. Each map is remembered with the size
// and time that its file had. A page that is gone reads as zeros, by a handler of SIGBUS that passes other faults on, and
// whoever read of the file asks afterwards whether it is as it was: a result is given only if it is. A file that was
// replaced (renamed over, removed) stays as it was for its map.
#pragma once
#include "base/result.h"
#include <atomic>
#include <memory>
#include <string>
#include <sys/stat.h>

namespace tessera {

class MappedFile {
public:
  // `there`: of the file, before it was mapped at [data, data + bytes).
  static std::shared_ptr<const MappedFile> remember(const std::string& path, const struct stat& there, const void* data,
                                                    size_t bytes);
  // The one whose map has this address; null: none has.
  static std::shared_ptr<const MappedFile> at(const void* data);
  // Error CorruptFile: it was written in place, or cut off, since it was mapped. A system call.
  [[nodiscard]] Status unchanged() const;
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

private:
  struct Region;
  MappedFile() = default;
  std::string path_;
  struct stat there_ {};
  Region* region_ = nullptr;
};

} // namespace tessera
