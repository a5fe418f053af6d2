// The cache folder: results that take long to compute, on disk, found by kind and key.
//
//   FOLDER/objects/AB/<hash>.tsc   entries (entry.h); AB are the first digits of the hash
//   FOLDER/usage                   how many bytes the entries have, roughly; its lock is held while some are evicted
//   FOLDER/tuned.json              measured schedules, a text that people may edit (measure/tune/records.h)
//   FOLDER/tuned.json.lock, tuned.json.measuring   locks of it
//
// There is no index: an entry is a file, written next to its place and renamed, so that processes may read, write and
// evict at once, and one that ends in the middle leaves nothing but a temporary file, which is removed later. Entries
// are not synced: after a loss of power a damaged one is found by its checksum. A damaged or untrusted entry
// (private_folder.h) is reported, made again and replaced. An untrusted folder disables the cache. No error of the
// cache fails a compilation.
//
// The folder is bounded: beyond cache_limit() the entries that were not used for longest are removed (eviction.h).
#pragma once
#include "runtime/cache/entry.h"
#include "runtime/cache/private_folder.h"
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

// `given`, else TESSERA_CACHE_DIR, else $XDG_CACHE_HOME/tessera, else ~/.cache/tessera; empty: there is no such folder.
[[nodiscard]] std::string cache_directory(const std::string& given);

class Cache {
public:
  // `directory`: that of cache_directory(). If `enabled` is false, find() returns nothing and store() does nothing.
  Cache(const std::string& directory, bool enabled);
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache(); // counts what was stored; may evict

  // Any thread may call these.
  [[nodiscard]] std::optional<std::vector<char>> find(EntryKind kind, const Hash128& key);
  // The same for what is large: the payload is a view of the entry's file, which stays as it is while the storage lives.
  [[nodiscard]] std::optional<Storage> map(EntryKind kind, const Hash128& key);
  // A damaged payload, which the caller has found: the entry is reported as find() does.
  void report_damaged(EntryKind kind, const Hash128& key, const std::string& why);
  void store(EntryKind kind, const Hash128& key, const EntryOrigin& origin, std::string_view payload);
  // Problems of the cache itself, each kind once. They never fail a compilation.
  [[nodiscard]] std::vector<std::string> warnings() const;
  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] int64_t limit() const { return limit_; } // of the folder, in bytes

private:
  template <class File, class Read>
  [[nodiscard]] std::optional<std::pair<File, std::string_view>> look(EntryKind kind, const Hash128& key,
                                                                      const Read& read);
  void warn(std::string text);
  void count(int64_t bytes);
  std::string directory_;
  int64_t limit_; // bytes
  std::atomic<bool> reads_, writes_;
  std::atomic<bool> unread_{false}, unwritten_{false},
      damaged_{false};                // an untrusted entry, one that was not written, a damaged one has been reported
  std::atomic<int64_t> uncounted_{0}; // bytes that were stored since the folder's usage was last brought up to date
  mutable std::mutex mutex_;
  std::vector<std::string> warnings_;
};

} // namespace tessera
