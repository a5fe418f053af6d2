#include "base/file.h"
#include "base/limits.h"
#include "base/mapped_file.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera {
namespace {

Location at(const std::string& path) {
  Location where;
  where.file = path;
  return where;
}

// An error for what is `mode` and should be `expected`.
Diagnostic wrong_kind(ErrorCode code, const std::string& path, unsigned mode, std::string_view expected) {
  return {code, at(path), "is " + std::string(file_kind(mode)) + ", " + std::string(expected) + " is expected"};
}

Status write_all(int fd, const std::string& path, const char* data, size_t bytes) {
  while (bytes > 0) {
    ssize_t n = ::write(fd, data, std::min(bytes, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(ErrorCode::FileError, path, "write", errno);
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return {};
}

} // namespace

FileDescriptor::~FileDescriptor() { (void)close(); }
int FileDescriptor::close() {
  int fd = std::exchange(fd_, -1);
  return fd >= 0 ? ::close(fd) : 0;
}

std::string_view file_kind(unsigned st_mode) {
  switch (st_mode & S_IFMT) {
  case S_IFREG: return "a regular file";
  case S_IFDIR: return "a folder";
  case S_IFIFO: return "a FIFO";
  case S_IFSOCK: return "a socket";
  case S_IFCHR: return "a character device";
  case S_IFBLK: return "a block device";
  case S_IFLNK: return "a symbolic link";
  default: return "no file";
  }
}

Diagnostic file_error(ErrorCode code, const std::string& path, const std::string& what, int error) {
  Diagnostic d(error == ENOMEM ? ErrorCode::OutOfMemory : code, at(path),
               "cannot " + what + ": " + std::strerror(error));
  if (error == ENOMEM) d.notes = limit_notes(false);
  if (error == ENOSPC || error == EDQUOT) d.note("the disk is full");
  return d;
}

int read_flags() { return O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY; }

Result<FileDescriptor> regular_file(FileDescriptor fd, const std::string& path, ErrorCode code) {
  struct stat st {};
  if (!fd) return file_error(code, path, "open", errno);
  if (::fstat(fd.get(), &st) != 0) return file_error(code, path, "examine", errno);
  if (!S_ISREG(st.st_mode)) return wrong_kind(code, path, st.st_mode, "a regular file");
  return fd;
}

Result<FileDescriptor> open_file(const std::string& path, ErrorCode code) {
  return regular_file(FileDescriptor(::open(path.c_str(), read_flags())), path, code);
}

Result<size_t> read_some(const FileDescriptor& fd, const std::string& path, void* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    ssize_t n = ::read(fd.get(), static_cast<char*>(to) + done, std::min(bytes - done, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(ErrorCode::FileError, path, "read", errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

Result<std::string> read_rest(const FileDescriptor& fd, const std::string& path) {
  struct stat st {};
  std::string text;
  if (::fstat(fd.get(), &st) == 0 && st.st_size > 0) text.reserve(static_cast<size_t>(st.st_size));
  char block[1 << 16];
  for (;;) { // to the end, whatever fstat() says: files of /proc have no size
    TESSERA_ASSIGN(size_t n, read_some(fd, path, block, sizeof block));
    text.append(block, n);
    if (n < sizeof block) return text;
  }
}

Result<std::string> read_file(const std::string& path) {
  TESSERA_ASSIGN(auto fd, open_file(path));
  return read_rest(fd, path);
}

Result<Storage> map_file(const std::string& path, ErrorCode code) {
  TESSERA_ASSIGN(auto fd, open_file(path, code));
  return map_file(fd, path, code);
}

Result<Storage> map_file(const FileDescriptor& fd, const std::string& path, ErrorCode code) {
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return file_error(code, path, "examine", errno);
  auto bytes = static_cast<size_t>(st.st_size);
  if (bytes == 0) return Storage{};
  void* p = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0); // the map keeps the file
  if (p == MAP_FAILED) return file_error(code, path, "map", errno);
  struct Map {
    void* data;
    size_t bytes;
    std::shared_ptr<const MappedFile> file = nullptr;
    ~Map() {
      file.reset(); // before something else is mapped there
      ::munmap(data, bytes);
    }
  };
  auto owner = std::shared_ptr<Map>(new Map{p, bytes});
  owner->file = MappedFile::remember(path, st, p, bytes);
  return Storage{std::move(owner), static_cast<const std::byte*>(p), bytes};
}

void drop_pages(const void* data, size_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(data), end = begin + bytes;
  auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  // Only advice: refusal costs memory, nothing else.
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Status write_file(const std::string& path, std::initializer_list<std::string_view> pieces) {
  struct stat st {};
  // Without O_NONBLOCK a FIFO would wait for its reader; with it, one that nobody reads cannot be opened.
  FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
  if (!fd) {
    int error = errno;
    if (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode))
      return wrong_kind(ErrorCode::FileError, path, st.st_mode,
                        error == ENXIO ? "a regular file, or a FIFO that somebody reads," : "a regular file");
    return file_error(ErrorCode::FileError, path, "write", error);
  }
  if (::fstat(fd.get(), &st) != 0) return file_error(ErrorCode::FileError, path, "examine", errno);
  if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
    return wrong_kind(ErrorCode::FileError, path, st.st_mode, "a regular file");
  if (::fcntl(fd.get(), F_SETFL, 0) != 0) return file_error(ErrorCode::FileError, path, "write", errno);
  for (std::string_view piece : pieces) TESSERA_TRY(write_all(fd.get(), path, piece.data(), piece.size()));
  return {};
}

NewFile::NewFile(FileDescriptor folder, std::string name, std::string path)
    : folder_(std::move(folder)), name_(std::move(name)), path_(std::move(path)) {}

NewFile::NewFile(NewFile&& o) noexcept
    : folder_(std::move(o.folder_)), file_(std::move(o.file_)), name_(std::move(o.name_)),
      temporary_(std::exchange(o.temporary_, {})), path_(std::move(o.path_)) {}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
}

namespace {
Result<std::string> temporary_name(const std::string& path) {
  uint64_t random = 0;
  char name[32];
  if (::getrandom(&random, sizeof random, 0) != sizeof random)
    return file_error(ErrorCode::FileError, path, "create", errno);
  std::snprintf(name, sizeof name, "%s%016llx", kTemporaryPrefix.data(), static_cast<unsigned long long>(random));
  return std::string(name);
}

// A file without a name gets one by this path.
std::string link_of(const FileDescriptor& file) { return "/proc/self/fd/" + std::to_string(file.get()); }

// Whether the file still has a name: another process may have removed it before it was locked. A file system without
// locks keeps what nobody removes.
bool lock_named(const FileDescriptor& file) {
  struct stat st {};
  return ::flock(file.get(), LOCK_EX) != 0 || ::fstat(file.get(), &st) != 0 || st.st_nlink > 0;
}

// Removes temporary files of processes that ended: a file that is being written is locked.
void remove_abandoned(const FileDescriptor& folder) {
  FileDescriptor opened(::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opened ? ::fdopendir(opened.get()) : nullptr, &::closedir);
  if (!entries) return;
  (void)opened.release();
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(kTemporaryPrefix) || name.size() != kTemporaryPrefix.size() + 16) continue;
    const FileDescriptor file(::openat(folder.get(), entry->d_name, read_flags() | O_NOFOLLOW));
    struct stat st {};
    if (file && ::fstat(file.get(), &st) == 0 && S_ISREG(st.st_mode) && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0)
      (void)::unlinkat(folder.get(), entry->d_name, 0);
  }
}

// Gives a file without a name its own one, or where there is a file of that name a temporary one, which is returned.
Result<std::string> give_name(const FileDescriptor& file, const FileDescriptor& folder, const std::string& own,
                              const std::string& path) {
  std::string name = own;
  for (int i = 0; i < 16; ++i) {
    if (::linkat(AT_FDCWD, link_of(file).c_str(), folder.get(), name.c_str(), AT_SYMLINK_FOLLOW) == 0)
      return i > 0 ? name : std::string();
    if (errno != EEXIST) break;
    TESSERA_ASSIGN(name, temporary_name(path));
  }
  return file_error(ErrorCode::FileError, path, "create", errno);
}
} // namespace

Status NewFile::open(unsigned mode) {
  file_ = FileDescriptor(::openat(folder_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode));
  if (file_ && ::access(link_of(file_).c_str(), F_OK) == 0) {
    (void)::flock(file_.get(), LOCK_EX);
    return {};
  }
  for (int i = 0; i < 16; ++i) {
    TESSERA_ASSIGN(const std::string name, temporary_name(path_));
    file_ = FileDescriptor(::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file_ && lock_named(file_)) {
      temporary_ = name;
      return {};
    }
    if (!file_ && errno != EEXIST) break;
  }
  return file_error(ErrorCode::FileError, path_, "create", errno);
}

Result<NewFile> NewFile::create(const std::string& path) {
  auto slash = path.rfind('/');
  const bool here = slash == std::string::npos;
  std::string folder = here ? "." : path.substr(0, std::max<size_t>(slash, 1));
  FileDescriptor fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return file_error(ErrorCode::FileError, path, "create", errno);
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode))
    return wrong_kind(ErrorCode::FileError, path, st.st_mode, "a regular file, or nothing,");
  remove_abandoned(fd);
  NewFile file(std::move(fd), here ? path : path.substr(slash + 1), path);
  TESSERA_TRY(file.open(0666));
  return file;
}

Result<NewFile> NewFile::create_private(int folder, const std::string& name, const std::string& path) {
  FileDescriptor copy(::fcntl(folder, F_DUPFD_CLOEXEC, 0));
  if (!copy) return file_error(ErrorCode::FileError, path, "create", errno);
  NewFile file(std::move(copy), name, path);
  TESSERA_TRY(file.open(0600));
  if (::fchmod(file.file_.get(), 0600) != 0) return file_error(ErrorCode::FileError, path, "create", errno);
  return file;
}

Status NewFile::write(const void* data, size_t bytes) {
  return write_all(file_.get(), path_, static_cast<const char*>(data), bytes);
}

Status NewFile::write_at(int64_t offset, const void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n =
        ::pwrite(file_.get(), static_cast<const char*>(data) + done, bytes - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(ErrorCode::FileError, path_, "write", errno);
    done += static_cast<size_t>(n);
  }
  return {};
}

Status NewFile::commit(bool sync) {
  if (sync && ::fsync(file_.get()) != 0) return file_error(ErrorCode::FileError, path_, "write", errno);
  const FileDescriptor locked(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0)); // until it has its name
  if (temporary_.empty()) {
    TESSERA_ASSIGN(temporary_, give_name(file_, folder_, name_, path_));
  }
  if (file_.close() != 0) return file_error(ErrorCode::FileError, path_, "write", errno);
  if (!temporary_.empty() && ::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0)
    return file_error(ErrorCode::FileError, path_, "rename to", errno);
  temporary_.clear();
  if (!sync) return {};
  // The name, too. A descriptor of O_PATH cannot be synced, and a file system without syncs of folders needs none.
  const FileDescriptor folder(::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) (void)::fsync(folder.get());
  return {};
}

} // namespace tessera
