// The size of the cache folder, and what is removed from it.
//
// Whoever stores adds the bytes to the number in FOLDER/usage, under its lock. Beyond the limit the same process looks
// at all entries and removes those that were not used for longest, until an eighth of the limit is free. A number that
// is missing, unreadable or older than a day is counted anew: it is an estimate, and the files are the truth. Readers
// hold no lock: an entry that is removed while it is read is read to its end, and one that is gone is made again.
//
// Processes count at the end of a compilation, and before that whenever they stored 1/kUncountedShare of the limit: the
// folder exceeds its limit by at most this for each process.
#pragma once
#include "runtime/cache/entry.h"
#include "runtime/cache/private_folder.h"
#include <functional>

namespace tessera {

inline constexpr int64_t kDefaultCacheLimit = int64_t{2} << 30; // bytes
inline constexpr int64_t kUncountedShare = 32;

// The limit that TESSERA_CACHE_LIMIT names ("none": no limit), else kDefaultCacheLimit. Error Usage: it is no size.
[[nodiscard]] Result<int64_t> cache_limit();

// The folder that holds the entry of this file name; nothing: it is missing and `missing` says to leave it so.
[[nodiscard]] Result<std::optional<PrivateFolder>>
open_entry_folder(const std::string& directory, const std::string& file_name, PrivateFolder::Missing missing);
// Calls f for each file in the folders of entries, in the order of their names, with the folder it lies in. No folder:
// no calls. Errors: those of f, which end it, and of folders that are not trusted.
using EntryFileFn = std::function<Status(const PrivateFolder& folder, const PrivateFolder::Item& file)>;
[[nodiscard]] Status each_entry_file(const std::string& directory, const EntryFileFn& f);

struct EvictionRules {
  int64_t limit = -1;                     // bytes that may stay; negative: any number
  int64_t to = -1;                        // once the limit is exceeded, bytes that may stay; negative: the limit
  int64_t older_than = -1;                // seconds since the last use, negative: any
  bool other_formats = false;             // of other versions of Tessera
  std::function<bool(const Entry&)> drop; // entries that are to go whatever their size and age; reads every entry
};
struct Evicted {
  int64_t files = 0, bytes = 0;           // that were removed
  int64_t files_left = 0, bytes_left = 0; // entries
};
// Removes entries by these rules, and temporary files that no process writes any more. Errors: FileError.
[[nodiscard]] Result<Evicted> evict(const std::string& directory, const EvictionRules& rules);

// Adds `stored` bytes to the folder's usage, and evicts where the limit is exceeded. False: another process did so for
// too long to wait for, or the folder cannot be written.
[[nodiscard]] bool bound_cache(const std::string& directory, int64_t stored, int64_t limit);

} // namespace tessera
