#include "runtime/cache/eviction.h"
#include "base/environment.h"
#include "base/log.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <unistd.h>

namespace tessera {
namespace {

constexpr const char* kEntries = "objects";
constexpr const char* kUsage = "usage";
constexpr int kLockMs = 200;               // most that a compilation waits for another process that evicts
constexpr int64_t kTemporarySeconds = 600; // a temporary file of this age was left by a process that ended
constexpr int64_t kRecountSeconds = 24 * 3600;

// The file `usage`, in this machine's byte order; a reader of a part of it finds that `check` is wrong.
struct Usage {
  int64_t bytes = 0, counted = 0; // counted: when, seconds since 1970
  uint64_t check = 0;
  [[nodiscard]] uint64_t sum() const {
    return hash_combine(static_cast<uint64_t>(bytes), static_cast<uint64_t>(counted));
  }
};

} // namespace

Result<int64_t> cache_limit() {
  const char* text = environment("TESSERA_CACHE_LIMIT");
  if (!text) return kDefaultCacheLimit;
  TESSERA_TRY(check_environment());
  return std::string_view(text) == "none" ? INT64_MAX : *parse_bytes(text);
}

Result<std::optional<PrivateFolder>> open_entry_folder(const std::string& directory, const std::string& file_name,
                                                       PrivateFolder::Missing missing) {
  TESSERA_ASSIGN(auto folder, PrivateFolder::open(directory, missing));
  for (const std::string& below : {std::string(kEntries), file_name.substr(0, 2)}) {
    if (!folder) break;
    TESSERA_ASSIGN(folder, folder->below(below, missing));
  }
  return folder;
}

Status each_entry_file(const std::string& directory, const EntryFileFn& f) {
  TESSERA_ASSIGN(auto folder, PrivateFolder::open(directory, PrivateFolder::Missing::Leave));
  if (folder) {
    TESSERA_ASSIGN(folder, folder->below(kEntries, PrivateFolder::Missing::Leave));
  }
  if (!folder) return {};
  TESSERA_ASSIGN(auto folders, folder->items());
  for (const auto& item : folders) {
    if (!item.folder) {
      TESSERA_TRY(f(*folder, item));
      continue;
    }
    TESSERA_ASSIGN(auto below, folder->below(item.name, PrivateFolder::Missing::Leave));
    if (!below) continue;
    TESSERA_ASSIGN(auto files, below->items());
    for (const auto& file : files) TESSERA_TRY(f(*below, file));
  }
  return {};
}

namespace {

// The rules without a lock.
Result<Evicted> evict_now(const std::string& directory, const EvictionRules& rules) {
  struct Candidate {
    std::string name;
    int64_t bytes, used;
  };
  std::vector<Candidate> stay;
  Evicted out;
  const int64_t now = ::time(nullptr);
  auto gone = [&](int64_t bytes) { ++out.files, out.bytes += bytes; };
  auto sweep = [&](const PrivateFolder& folder, const PrivateFolder::Item& file) -> Status {
    if (!file.folder && file.used + kTemporarySeconds < now) return folder.remove(file.name);
    return {};
  };
  TESSERA_ASSIGN(auto top, PrivateFolder::open(directory, PrivateFolder::Missing::Leave));
  if (!top) return out;
  TESSERA_ASSIGN(auto items, top->items());
  for (const auto& item : items)
    if (entry_file(item.name) == EntryFile::Temporary) TESSERA_TRY(sweep(*top, item)); // of tuned.json
  TESSERA_TRY(each_entry_file(directory, [&](const PrivateFolder& folder, const PrivateFolder::Item& file) -> Status {
    const EntryFile is = entry_file(file.name);
    bool drop = false;
    switch (is) {
    case EntryFile::Unknown: return {}; // 'tessera cache verify' names it
    case EntryFile::Temporary: return sweep(folder, file);
    case EntryFile::OtherFormat: drop = rules.other_formats; break;
    case EntryFile::Entry: break;
    }
    drop = drop || (rules.older_than >= 0 && file.used + rules.older_than < now);
    if (!drop && rules.drop && is == EntryFile::Entry) {
      auto text = folder.read(file.name);
      auto entry = text.ok() && *text ? decode_entry(**text) : Result<Entry>(Diagnostic(ErrorCode::CorruptFile, ""));
      drop = entry.ok() && rules.drop(*entry);
    }
    if (!drop) {
      stay.push_back({file.name, file.bytes, file.used});
      out.bytes_left += file.bytes;
      return {};
    }
    gone(file.bytes);
    return folder.remove(file.name);
  }));
  out.files_left = static_cast<int64_t>(stay.size());
  if (rules.limit < 0 || out.bytes_left <= rules.limit) return out;
  std::sort(stay.begin(), stay.end(),
            [](const Candidate& a, const Candidate& b) { return std::tie(a.used, a.name) < std::tie(b.used, b.name); });
  const int64_t target = rules.to >= 0 ? rules.to : rules.limit;
  for (const Candidate& c : stay) {
    if (out.bytes_left <= target) break;
    TESSERA_ASSIGN(auto folder, open_entry_folder(directory, c.name, PrivateFolder::Missing::Leave));
    if (folder) TESSERA_TRY(folder->remove(c.name));
    gone(c.bytes);
    out.bytes_left -= c.bytes;
    --out.files_left;
  }
  return out;
}

Usage read_usage(const FileDescriptor& fd) {
  Usage u;
  if (::pread(fd.get(), &u, sizeof u, 0) != sizeof u || u.check != u.sum() || u.bytes < 0) return {};
  return u;
}

// A number that is not written is counted anew by the next process.
void write_usage(const FileDescriptor& fd, int64_t bytes, int64_t counted) {
  Usage u{bytes, counted, 0};
  u.check = u.sum();
  (void)!::pwrite(fd.get(), &u, sizeof u, 0);
}

} // namespace

Result<Evicted> evict(const std::string& directory, const EvictionRules& rules) {
  TESSERA_ASSIGN(auto folder, PrivateFolder::open(directory, PrivateFolder::Missing::Leave));
  if (!folder) return Evicted{};
  TESSERA_ASSIGN(auto locked, folder->lock(kUsage));
  TESSERA_ASSIGN(Evicted out, evict_now(directory, rules));
  write_usage(locked, out.bytes_left, ::time(nullptr));
  return out;
}

bool bound_cache(const std::string& directory, int64_t stored, int64_t limit) {
  auto folder = PrivateFolder::open(directory, PrivateFolder::Missing::Leave);
  if (!folder.ok() || !*folder) return false;
  auto locked = (*folder)->lock(kUsage, kLockMs);
  if (!locked.ok() || !*locked) return false;
  const int64_t now = ::time(nullptr);
  const Usage before = read_usage(*locked);
  const bool recount = before.counted + kRecountSeconds < now || before.counted > now;
  if (!recount && stored <= limit && before.bytes <= limit - stored) {
    write_usage(*locked, before.bytes + stored, before.counted);
    return true;
  }
  EvictionRules rules;
  rules.limit = limit;
  rules.to = limit - limit / 8;
  auto evicted = evict_now(directory, rules);
  if (!evicted.ok()) return false;
  if (evicted->files > 0)
    TESSERA_LOGF(LogChannel::Cache, "evicted " + std::to_string(evicted->files) + " entries of " +
                                        std::to_string(evicted->bytes) + " bytes; " +
                                        std::to_string(evicted->bytes_left) + " bytes stay");
  write_usage(*locked, evicted->bytes_left, now);
  return true;
}

} // namespace tessera
