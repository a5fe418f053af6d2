#include "runtime/cache/cache.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "base/log.h"
#include "runtime/cache/eviction.h"
#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace tessera {

namespace {
std::string_view text_of(const std::string& file) { return file; }
std::string_view text_of(const Storage& file) { return {reinterpret_cast<const char*>(file.data), file.bytes}; }
} // namespace

std::string cache_directory(const std::string& given) {
  if (!given.empty()) return given;
  if (const char* dir = environment("TESSERA_CACHE_DIR")) return dir;
  auto set = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::string(value ? value : "");
  };
  if (const auto xdg = set("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/tessera";
  if (const auto home = set("HOME"); !home.empty()) return home + "/.cache/tessera";
  // systemd sets this for a service, which has no HOME; the first of several counts.
  if (const auto service = set("CACHE_DIRECTORY"); !service.empty())
    return service.substr(0, service.find(':')) + "/tessera";
  return "";
}

Cache::Cache(const std::string& directory, bool enabled)
    : directory_(cache_directory(directory)), reads_(enabled), writes_(enabled) {
  if (directory_.empty()) {
    reads_ = writes_ = false;
    static std::atomic<bool> warned{false};
    if (enabled && !warned.exchange(true))
      log_write(LogChannel::Warnings, "there is no cache folder, and what is compiled is lost with the process: "
                                      "none of TESSERA_CACHE_DIR, XDG_CACHE_HOME, HOME and CACHE_DIRECTORY is set");
  }
  auto limit = cache_limit();
  limit_ = limit.ok() ? *limit : kDefaultCacheLimit;
  if (!limit.ok() && reads_) warn(limit.error().message);
}

// Bytes that are not counted here are found by the next count of the whole folder.
Cache::~Cache() {
  if (uncounted_ > 0)
    (void)guarded("bounding the cache", [&]() -> Status {
      (void)bound_cache(directory_, uncounted_, limit_);
      return {};
    });
}

void Cache::warn(std::string text) {
  std::lock_guard lock(mutex_);
  if (std::find(warnings_.begin(), warnings_.end(), text) != warnings_.end()) return;
  TESSERA_LOGF(LogChannel::Cache, text);
  warnings_.push_back(std::move(text));
}

std::vector<std::string> Cache::warnings() const {
  std::lock_guard lock(mutex_);
  return warnings_;
}

// The file of an entry, as `read` gives it, and the payload in it.
template <class File, class Read>
std::optional<std::pair<File, std::string_view>> Cache::look(EntryKind kind, const Hash128& key, const Read& read) {
  if (!reads_) return std::nullopt;
  const std::string name = entry_file_name(kind, key);
  auto opened = open_entry_folder(directory_, name, PrivateFolder::Missing::Leave);
  if (!opened.ok()) { // it affects all entries
    writes_ = false;
    if (reads_.exchange(false)) warn(cache_warning(opened.error()));
    return std::nullopt;
  }
  if (!*opened) return std::nullopt;
  Result<std::optional<File>> file = read(**opened, name);
  if (!file.ok()) {
    if (!unread_.exchange(true)) warn(cache_warning(file.error()));
    return std::nullopt;
  }
  if (!*file) return std::nullopt;
  auto entry = decode_entry(text_of(**file));
  if (entry.ok() && (entry->kind != kind || entry->key != key))
    entry = Diagnostic(ErrorCode::CorruptFile, "it is the entry of another key");
  if (!entry.ok()) {
    report_damaged(kind, key, entry.error().message);
    return std::nullopt;
  }
  const std::string_view payload = entry->payload;
  const auto at = static_cast<size_t>(payload.data() - text_of(**file).data());
  std::pair<File, std::string_view> out{std::move(**file), {}};
  out.second = text_of(out.first).substr(at); // a short string moves its bytes
  return out;
}

void Cache::report_damaged(EntryKind kind, const Hash128& key, const std::string& why) {
  if (damaged_.exchange(true)) return;
  const std::string name = entry_file_name(kind, key);
  const auto folder = open_entry_folder(directory_, name, PrivateFolder::Missing::Leave);
  const std::string& path = folder.ok() && *folder ? (*folder)->path() : directory_;
  warn("cache entry " + path + "/" + name + " is damaged: " + why +
       "; damaged entries are made again and replaced ('tessera cache verify' names them all)");
}

std::optional<std::vector<char>> Cache::find(EntryKind kind, const Hash128& key) {
  auto found = look<std::string>(
      kind, key, [](const PrivateFolder& folder, const std::string& name) { return folder.read(name, true); });
  if (!found) return std::nullopt;
  return std::vector<char>(found->second.begin(), found->second.end());
}

std::optional<Storage> Cache::map(EntryKind kind, const Hash128& key) {
  auto found = look<Storage>(
      kind, key, [](const PrivateFolder& folder, const std::string& name) { return folder.map(name, true); });
  if (!found) return std::nullopt;
  const std::string_view payload = found->second;
  return Storage{std::move(found->first.owner), reinterpret_cast<const std::byte*>(payload.data()), payload.size()};
}

void Cache::store(EntryKind kind, const Hash128& key, const EntryOrigin& origin, std::string_view payload) {
  if (!writes_) return;
  const Entry entry{kind, key, ::time(nullptr), origin, payload};
  const std::string name = entry.file_name();
  auto folder = open_entry_folder(directory_, name, PrivateFolder::Missing::Make);
  if (!folder.ok()) { // a disk may be read-only: what is there is still found
    if (writes_.exchange(false)) warn(cache_warning(folder.error()));
    return;
  }
  const std::string head = encode_entry_head(entry);
  if (auto status = (*folder)->write(name, {head, payload}); !status.ok()) {
    if (!unwritten_.exchange(true)) warn(cache_warning(status.error()));
    return;
  }
  count(static_cast<int64_t>(head.size() + payload.size()));
}

// A process that stores much does not wait until its end for the folder to be bounded.
void Cache::count(int64_t bytes) {
  const int64_t now = uncounted_ += bytes;
  if (now < limit_ / kUncountedShare) return;
  if (const int64_t all = uncounted_.exchange(0); all > 0 && !bound_cache(directory_, all, limit_)) uncounted_ += all;
}

} // namespace tessera
