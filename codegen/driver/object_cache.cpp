#include "codegen/driver/object_cache.h"
#include "graph/support/log.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tessera {
namespace {

struct Header {
  char magic[8];
  uint64_t bytes;
  Hash128 content;
};
constexpr char kMagic[8] = {'T', 'S', 'R', 'O', 'B', 'J', '0', '1'};

std::string default_directory() {
  if (const char* dir = std::getenv("TESSERA_CACHE_DIR"); dir && *dir) return dir;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/tessera";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/tessera";
  return "";
}

} // namespace

ObjectCache::ObjectCache(std::string directory, bool enabled) : directory_(std::move(directory)), enabled_(enabled) {
  if (directory_.empty()) directory_ = default_directory();
  if (directory_.empty()) enabled_ = false;
}

void ObjectCache::warn(std::string text) {
  std::lock_guard lock(mutex_);
  if (std::find(warnings_.begin(), warnings_.end(), text) != warnings_.end()) return;
  TESSERA_LOGF(LogChannel::Cache, text);
  warnings_.push_back(std::move(text));
}

std::vector<std::string> ObjectCache::warnings() const {
  std::lock_guard lock(mutex_);
  return warnings_;
}

// The folder of an entry; nothing if it is missing and not to be created. A folder that cannot be used or is not
// trusted affects all entries.
std::optional<PrivateFolder> ObjectCache::folder_of(const std::string& name, PrivateFolder::Missing missing) {
  auto all = [&]() -> Result<std::optional<PrivateFolder>> {
    TESSERA_ASSIGN(auto folder, PrivateFolder::open(directory_, missing));
    for (const std::string& below : {std::string("objects"), name.substr(0, 2)}) {
      if (!folder) break;
      TESSERA_ASSIGN(folder, folder->below(below, missing));
    }
    return folder;
  };
  auto folder = all();
  if (folder.ok()) return std::move(*folder);
  if (enabled_.exchange(false)) warn(cache_warning(folder.error()));
  return std::nullopt;
}

std::optional<std::vector<char>> ObjectCache::find(const Hash128& key) {
  if (!enabled_) return std::nullopt;
  std::string name = key.hex();
  auto folder = folder_of(name, PrivateFolder::Missing::Leave);
  if (!folder) return std::nullopt;
  auto text = folder->read(name + ".o");
  if (!text.ok()) {
    if (!unread_.exchange(true)) warn(cache_warning(text.error()));
    return std::nullopt;
  }
  if (!*text) return std::nullopt;
  const std::string& entry = **text;
  Header h{};
  if (entry.size() >= sizeof h) std::memcpy(&h, entry.data(), sizeof h);
  if (entry.size() < sizeof h || std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 ||
      h.bytes != entry.size() - sizeof h || h.content != hash128(entry.data() + sizeof h, entry.size() - sizeof h)) {
    warn("cache entry " + directory_ + "/objects/" + name.substr(0, 2) + "/" + name +
         ".o is damaged; the kernel is compiled again and the entry replaced");
    return std::nullopt;
  }
  return std::vector<char>(entry.begin() + sizeof h, entry.end());
}

void ObjectCache::store(const Hash128& key, const std::vector<char>& object) {
  if (!enabled_) return;
  std::string name = key.hex();
  auto folder = folder_of(name, PrivateFolder::Missing::Make);
  if (!folder) return;
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.bytes = object.size();
  h.content = hash128(object.data(), object.size());
  auto status = folder->write(name + ".o", {std::string_view(reinterpret_cast<const char*>(&h), sizeof h),
                                            std::string_view(object.data(), object.size())});
  if (!status.ok() && !unwritten_.exchange(true)) warn(cache_warning(status.error()));
}

} // namespace tessera
