// A folder of files that this process executes or believes, such as compiled kernels: the user's own, in which nobody
// else can write. Ownership is asked of the opened folder and the opened file, so that what was checked is what is
// used, and nothing is opened through a symbolic link in the folder.
//
//   the folder, folders in it, its files   owned by the effective user; no write permission for group and others
//   folders above it                       no write permission for group and others, unless sticky as /tmp is
//   symbolic links above it                owned by the effective user or root
//
// Ownership of the folders above does not count: whoever can rename the folder can only put another folder of the
// user's own in its place. docs/trust.md says what this protects from.
#pragma once
#include "graph/support/file.h"
#include <optional>

namespace tessera {

class PrivateFolder {
public:
  enum class Missing : uint8_t { Leave, Make };
  // Nothing: it does not exist and `missing` is Leave. Folders that are made, those above it too, have mode 0700
  // whatever the umask. Errors: FileError, with the folder, the owner and mode seen, what is expected, what to do.
  [[nodiscard]] static Result<std::optional<PrivateFolder>> open(const std::string& path, Missing missing);
  // A folder in this one.
  [[nodiscard]] Result<std::optional<PrivateFolder>> below(const std::string& name, Missing missing) const;

  // A file's contents; nothing: there is none of that name. Errors: FileError, as for the folder.
  [[nodiscard]] Result<std::optional<std::string>> read(const std::string& name) const;
  // Replaces a file at once, whoever reads or writes it meanwhile. It has mode 0600.
  [[nodiscard]] Status write(const std::string& name, std::initializer_list<std::string_view> pieces) const;
  // Waits until no other process holds the lock NAME, a file; held until the descriptor is closed.
  [[nodiscard]] Result<FileDescriptor> lock(const std::string& name) const;

private:
  PrivateFolder(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  FileDescriptor fd_;
  std::string path_;
};

// The one line that says that a cache does without a folder or file.
[[nodiscard]] std::string cache_warning(const Diagnostic& error);

} // namespace tessera
