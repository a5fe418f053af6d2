#include "base/temporary_folder.h"
#include "base/guarded.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace tessera {

Result<TemporaryFolder> TemporaryFolder::create(const std::string& name) {
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base && *base ? base : "/tmp") + "/" + name + "-XXXXXX";
  if (::mkdtemp(path.data())) return TemporaryFolder(std::move(path));
  return Diagnostic(ErrorCode::FileError, "cannot make a folder '" + path + "': " + std::strerror(errno))
      .note("TMPDIR names the folder for temporary files");
}

TemporaryFolder::~TemporaryFolder() {
  if (!path_.empty())
    (void)guarded("removing a temporary folder", [&]() -> Status { // nothing depends on it
      std::error_code ignored;
      std::filesystem::remove_all(path_, ignored);
      return {};
    });
}

} // namespace tessera
