#include "codegen/driver/object_cache.h"
#include "graph/support/log.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

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

bool write_all(int fd, const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t n = ::write(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

std::optional<std::string> read_file(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  struct stat st {};
  if (::fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size < (int64_t{1} << 30))
    text.reserve(static_cast<size_t>(st.st_size));
  char block[1 << 16];
  for (ssize_t n; (n = ::read(fd, block, sizeof block)) != 0;) {
    if (n < 0) {
      if (errno == EINTR) continue;
      break;
    }
    text.append(block, static_cast<size_t>(n));
  }
  ::close(fd);
  return text;
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

std::optional<std::vector<char>> ObjectCache::find(const Hash128& key) {
  if (!enabled_) return std::nullopt;
  std::string name = key.hex(), path = directory_ + "/objects/" + name.substr(0, 2) + "/" + name + ".o";
  auto text = read_file(path);
  if (!text) return std::nullopt;
  Header h{};
  if (text->size() >= sizeof h) std::memcpy(&h, text->data(), sizeof h);
  if (text->size() < sizeof h || std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 ||
      h.bytes != text->size() - sizeof h || h.content != hash128(text->data() + sizeof h, text->size() - sizeof h)) {
    warn("cache entry " + path + " is damaged; the kernel is compiled again and the entry replaced");
    return std::nullopt;
  }
  return std::vector<char>(text->begin() + sizeof h, text->end());
}

void ObjectCache::store(const Hash128& key, const std::vector<char>& object) {
  if (!enabled_) return;
  std::string name = key.hex(), folder = directory_ + "/objects/" + name.substr(0, 2);
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec)
    return warn("cache folder " + directory_ + " cannot be written (" + ec.message() +
                "); kernels are compiled anew in each process");
  std::string temporary = folder + "/." + name + "." + std::to_string(::getpid()) + ".XXXXXX";
  int fd = ::mkstemp(temporary.data());
  if (fd < 0)
    return warn("cache folder " + directory_ + " cannot be written (" + std::strerror(errno) +
                "); kernels are compiled anew in each process");
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.bytes = object.size();
  h.content = hash128(object.data(), object.size());
  bool good = write_all(fd, &h, sizeof h) && write_all(fd, object.data(), object.size());
  int error = errno;
  good = ::close(fd) == 0 && good;
  if (good && ::rename(temporary.c_str(), (folder + "/" + name + ".o").c_str()) == 0) return;
  if (good) error = errno;
  ::unlink(temporary.c_str());
  warn("cache folder " + directory_ + " cannot be written (" + std::strerror(error) +
       "); kernels are compiled anew in each process");
}

} // namespace tessera
