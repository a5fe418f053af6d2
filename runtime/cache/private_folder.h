// A private folder: files that this process executes or trusts, such as compiled kernels, in a folder of the user's in
// which nobody else can write. Ownership is checked on opened descriptors of folder and file, so the checked file is
// the used one, and no symbolic link in the folder is followed.
//
//   the folder, folders in it, its files   owned by the effective user; no write permission for group and others
//   folders above it                       no write permission for group and others, unless sticky like /tmp
//   symbolic links above it                owned by the effective user or root
//
// The owner of folders above is not checked: who can rename the folder can only replace it by another folder of the
// user's. docs/trust.md explains the protection.
#pragma once
#include "base/file.h"
#include <optional>
#include <vector>

namespace tessera {

class PrivateFolder {
public:
  enum class Missing : uint8_t { Leave, Make };
  // Returns nothing if the folder does not exist and `missing` is Leave. Created folders, parents included, have mode
  // 0700 for every umask. Errors: FileError, with the folder, the observed owner and mode, the expected ones, and what
  // to do.
  [[nodiscard]] static Result<std::optional<PrivateFolder>> open(const std::string& path, Missing missing);
  // Opens a subfolder.
  [[nodiscard]] Result<std::optional<PrivateFolder>> below(const std::string& name, Missing missing) const;

  // Contents of a file; nothing if it does not exist. `used`: the time of its last access becomes now, where the file
  // system allows it and the time is older than kUseSeconds. Errors: FileError, as for the folder.
  [[nodiscard]] Result<std::optional<std::string>> read(const std::string& name, bool used = false) const;
  // The same, mapped: what replaces or removes the file does not change it.
  [[nodiscard]] Result<std::optional<Storage>> map(const std::string& name, bool used = false) const;
  // Replaces a file atomically, also with concurrent readers and writers. Its mode is 0600. `sync`: returns when the
  // contents are on disk, so that a loss of power leaves the file before or this one.
  [[nodiscard]] Status write(const std::string& name, std::initializer_list<std::string_view> pieces,
                             bool sync = false) const;
  // Acquires the lock file NAME, after other processes release it; held until the descriptor is closed. An empty
  // descriptor: they did not within `most_ms` milliseconds, where that is not negative.
  [[nodiscard]] Result<FileDescriptor> lock(const std::string& name, int most_ms = -1) const;

  struct Item {
    std::string name;
    bool folder = false;
    int64_t bytes = 0, used = 0; // used: time of the last access, seconds since 1970
  };
  // The folder's files, sorted by name.
  [[nodiscard]] Result<std::vector<Item>> items() const;
  // Removes a file; one that is gone already is removed.
  [[nodiscard]] Status remove(const std::string& name) const;
  [[nodiscard]] const std::string& path() const { return path_; }

  static constexpr int kUseSeconds = 600;

private:
  PrivateFolder(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  FileDescriptor fd_;
  std::string path_;
};

// The warning that a cache works without a folder or file.
[[nodiscard]] std::string cache_warning(const Diagnostic& error);

} // namespace tessera
