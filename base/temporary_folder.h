// A folder of its own for files that nobody needs afterwards.
#pragma once
#include "base/result.h"
#include <string>
#include <utility>

namespace tessera {

class TemporaryFolder {
public:
  // In TMPDIR, else /tmp, for the user alone; `name` begins the folder's name. Error FileError: it cannot be made.
  [[nodiscard]] static Result<TemporaryFolder> create(const std::string& name);
  TemporaryFolder(TemporaryFolder&& o) noexcept : path_(std::exchange(o.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder(); // removes the folder with what is in it

  [[nodiscard]] const std::string& path() const { return path_; }

private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_; // empty: moved from
};

} // namespace tessera
