#include "runtime/cache/private_folder.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace tessera {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr int kMaxLinks = 40; // limit of symbolic links in a path, as in the system
constexpr int kFolderFlags = O_PATH | O_NOFOLLOW | O_CLOEXEC;

Diagnostic system_error(const std::string& path, const std::string& what) {
  return file_error(ErrorCode::FileError, path, what, errno);
}

Diagnostic untrusted(const std::string& path, const struct stat& st, const std::string& expected) {
  char mode[16];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(st.st_mode & 07777));
  Location where;
  where.file = path;
  Diagnostic d(ErrorCode::FileError, std::move(where),
               std::string(file_kind(st.st_mode)) + " of user " + std::to_string(st.st_uid) + " with mode " + mode +
                   " is not trusted; expected is " + expected);
  d.note("remove it if you do not know what is in it, or change its owner and mode; TESSERA_CACHE_DIR names another "
         "cache folder");
  return d;
}

// Check of the folder itself and its contents.
Status check_own(const std::string& path, const struct stat& st) {
  if (st.st_uid == ::geteuid() && (st.st_mode & kOthersWrite) == 0) return {};
  return untrusted(path, st, "one of user " + std::to_string(::geteuid()) + " that group and others cannot write");
}

// Check of a folder above it.
Status check_above(const std::string& path, const struct stat& st) {
  if ((st.st_mode & kOthersWrite) == 0 || (st.st_mode & S_ISVTX) != 0) return {};
  return untrusted(path, st, "one that group and others cannot write, or a sticky one (mode 1777)");
}

// Opens NAME in `parent` without following links; creates it if it is missing and `missing` allows that. Empty
// descriptor: it is missing.
Result<FileDescriptor> open_component(int parent, const std::string& name, const std::string& path,
                                      PrivateFolder::Missing missing, struct stat& st) {
  FileDescriptor fd(::openat(parent, name.c_str(), kFolderFlags));
  if (!fd && errno == ENOENT && missing == PrivateFolder::Missing::Make) {
    if (::mkdirat(parent, name.c_str(), 0700) == 0) {
      if (::fchmodat(parent, name.c_str(), 0700, 0) != 0) return system_error(path, "make the folder");
    } else if (errno != EEXIST) // another process may have created it
      return system_error(path, "make the folder");
    fd = FileDescriptor(::openat(parent, name.c_str(), kFolderFlags));
  }
  if (!fd && errno == ENOENT) return fd;
  if (!fd) return system_error(path, "open the folder");
  if (::fstat(fd.get(), &st) != 0) return system_error(path, "examine the folder");
  return fd;
}

Diagnostic no_folder(const std::string& path, const struct stat& st) {
  Location where;
  where.file = path;
  return {ErrorCode::FileError, std::move(where),
          "is " + std::string(file_kind(st.st_mode)) + ", a folder is expected"};
}

void prepend(std::deque<std::string>& names, const std::string& path) {
  size_t at = 0;
  for (const auto& part : std::filesystem::path(path).relative_path())
    if (!part.empty() && part != ".") names.insert(names.begin() + static_cast<std::ptrdiff_t>(at++), part.string());
}

} // namespace

Result<std::optional<PrivateFolder>> PrivateFolder::open(const std::string& path, Missing missing) {
  std::error_code ec;
  const std::string absolute = std::filesystem::absolute(path, ec).string();
  if (ec) return file_error(ErrorCode::FileError, path, "find the folder", ec.value());
  std::deque<std::string> names; // remaining components
  prepend(names, absolute);
  auto root = [] { return FileDescriptor(::open("/", kFolderFlags | O_DIRECTORY)); };
  FileDescriptor fd = root();
  std::string shown = "/"; // path of fd
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0) return system_error(shown, "open the folder");
  for (int links = 0; !names.empty();) {
    TESSERA_TRY(check_above(shown, st));
    std::string name = std::move(names.front());
    names.pop_front();
    std::string below = shown + (shown.ends_with('/') ? "" : "/") + name;
    TESSERA_ASSIGN(auto next, open_component(fd.get(), name, below, missing, st));
    if (!next) return std::optional<PrivateFolder>();
    if (S_ISLNK(st.st_mode)) {
      if (st.st_uid != ::geteuid() && st.st_uid != 0)
        return untrusted(below, st, "one of user " + std::to_string(::geteuid()) + " or root");
      char target[PATH_MAX];
      ssize_t length = ::readlinkat(next.get(), "", target, sizeof target);
      if (length < 0 || static_cast<size_t>(length) == sizeof target) return system_error(below, "follow the link");
      if (++links > kMaxLinks) return file_error(ErrorCode::FileError, path, "open the folder", ELOOP);
      std::string to(target, static_cast<size_t>(length));
      prepend(names, to);
      if (to.starts_with('/')) {
        fd = root();
        shown = "/";
      }
      if (!fd || ::fstat(fd.get(), &st) != 0) return system_error(shown, "open the folder");
      continue;
    }
    if (!S_ISDIR(st.st_mode)) return no_folder(below, st);
    fd = std::move(next);
    shown = std::move(below);
  }
  TESSERA_TRY(check_own(shown, st));
  return std::optional(PrivateFolder(std::move(fd), path));
}

Result<std::optional<PrivateFolder>> PrivateFolder::below(const std::string& name, Missing missing) const {
  struct stat st {};
  std::string path = path_ + "/" + name;
  TESSERA_ASSIGN(auto fd, open_component(fd_.get(), name, path, missing, st));
  if (!fd) return std::optional<PrivateFolder>();
  if (!S_ISDIR(st.st_mode)) return no_folder(path, st);
  TESSERA_TRY(check_own(path, st));
  return std::optional(PrivateFolder(std::move(fd), std::move(path)));
}

namespace {
// Opens a regular file that the user owns.
Result<FileDescriptor> open_own(int folder, const std::string& name, const std::string& path, int flags) {
  FileDescriptor opened(::openat(folder, name.c_str(), flags | O_NOFOLLOW | O_NOATIME, 0600));
  // The kernel lets only the owner read without leaving a trace, and check_own() says whose the file is.
  if (!opened && errno == EPERM) opened = FileDescriptor(::openat(folder, name.c_str(), flags | O_NOFOLLOW, 0600));
  if (!opened && errno == ELOOP) {
    Location where;
    where.file = path;
    return Diagnostic(ErrorCode::FileError, std::move(where), "is a symbolic link, a regular file is expected");
  }
  if (!opened && errno == ENOENT) return opened;
  TESSERA_ASSIGN(auto fd, regular_file(std::move(opened), path, ErrorCode::FileError));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return system_error(path, "examine");
  TESSERA_TRY(check_own(path, st));
  return fd;
}

// The time of the last use becomes now; refused on a read-only disk, where nothing is evicted either. It is the access
// time: by the other one, processes that have the file mapped see that it was written.
void set_used(const FileDescriptor& fd) {
  struct stat st {};
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  if (::fstat(fd.get(), &st) == 0 && st.st_atim.tv_sec + PrivateFolder::kUseSeconds < ::time(nullptr))
    (void)::futimens(fd.get(), times);
}
} // namespace

Result<std::optional<std::string>> PrivateFolder::read(const std::string& name, bool used) const {
  const std::string path = path_ + "/" + name;
  TESSERA_ASSIGN(auto fd, open_own(fd_.get(), name, path, read_flags()));
  if (!fd) return std::optional<std::string>();
  TESSERA_ASSIGN(auto text, read_rest(fd, path));
  if (used) set_used(fd);
  return std::optional(std::move(text));
}

Result<std::optional<Storage>> PrivateFolder::map(const std::string& name, bool used) const {
  const std::string path = path_ + "/" + name;
  TESSERA_ASSIGN(auto fd, open_own(fd_.get(), name, path, read_flags()));
  if (!fd) return std::optional<Storage>();
  TESSERA_ASSIGN(auto file, map_file(fd, path));
  if (used) set_used(fd);
  return std::optional(std::move(file));
}

Status PrivateFolder::write(const std::string& name, std::initializer_list<std::string_view> pieces, bool sync) const {
  TESSERA_ASSIGN(auto file, NewFile::create_private(fd_.get(), name, path_ + "/" + name));
  for (std::string_view piece : pieces) TESSERA_TRY(file.write(piece.data(), piece.size()));
  return file.commit(sync);
}

Result<FileDescriptor> PrivateFolder::lock(const std::string& name, int most_ms) const {
  const std::string path = path_ + "/" + name;
  TESSERA_ASSIGN(auto fd, open_own(fd_.get(), name, path, (read_flags() & ~O_ACCMODE) | O_RDWR | O_CREAT));
  if (!fd) return system_error(path, "create");
  // Anyone who can open the file can hold the lock forever.
  if (::fchmod(fd.get(), 0600) != 0) return system_error(path, "change the mode of");
  for (int waited_ms = 0; ::flock(fd.get(), LOCK_EX | (most_ms < 0 ? 0 : LOCK_NB)) != 0;) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return system_error(path, "lock");
    if (waited_ms++ >= most_ms) return FileDescriptor();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return fd;
}

Result<std::vector<PrivateFolder::Item>> PrivateFolder::items() const {
  FileDescriptor fd(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return system_error(path_, "list the folder");
  std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(fd.get()), ::closedir);
  if (!listing) return system_error(path_, "list the folder");
  (void)fd.release(); // the listing's now
  std::vector<Item> out;
  for (errno = 0; const dirent* d = ::readdir(listing.get()); errno = 0) {
    struct stat st {};
    const std::string_view name = d->d_name;
    if (name == "." || name == "..") continue;
    if (::fstatat(fd_.get(), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue; // gone meanwhile
    out.push_back({std::string(name), S_ISDIR(st.st_mode), st.st_size, st.st_atim.tv_sec});
  }
  if (errno != 0) return system_error(path_, "list the folder");
  std::sort(out.begin(), out.end(), [](const Item& a, const Item& b) { return a.name < b.name; });
  return out;
}

Status PrivateFolder::remove(const std::string& name) const {
  if (::unlinkat(fd_.get(), name.c_str(), 0) != 0 && errno != ENOENT) return system_error(path_ + "/" + name, "remove");
  return {};
}

std::string cache_warning(const Diagnostic& error) {
  std::string text = "the cache does without " + error.location.file + ": " + error.message;
  for (const auto& note : error.notes) text += "; " + note;
  return text;
}

} // namespace tessera
