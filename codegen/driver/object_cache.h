// Object cache on disk: machine code by hash of the kernel's text and the compiler's version. Safe for several
// processes: entries are written to a temporary file and renamed. A damaged or untrusted entry (private_folder.h) is
// reported, recompiled and replaced. An untrusted folder disables the cache.
#pragma once
#include "codegen/driver/private_folder.h"
#include "graph/support/hash.h"
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

class ObjectCache {
public:
  // An empty directory name stands for TESSERA_CACHE_DIR, else $XDG_CACHE_HOME/tessera, else ~/.cache/tessera. If
  // `enabled` is false, find() returns nothing and store() does nothing.
  ObjectCache(std::string directory, bool enabled);

  [[nodiscard]] std::optional<std::vector<char>> find(const Hash128& key);
  void store(const Hash128& key, const std::vector<char>& object);
  // Problems of the cache itself, each kind once, and damaged entries. They never fail a compilation.
  [[nodiscard]] std::vector<std::string> warnings() const;
  [[nodiscard]] const std::string& directory() const { return directory_; }

private:
  void warn(std::string text);
  std::optional<PrivateFolder> folder_of(const std::string& name, PrivateFolder::Missing missing);
  std::string directory_;
  std::atomic<bool> enabled_;
  std::atomic<bool> unread_{false},
      unwritten_{false}; // an untrusted entry, or an entry that was not written, has been reported
  mutable std::mutex mutex_;
  std::vector<std::string> warnings_;
};

} // namespace tessera
