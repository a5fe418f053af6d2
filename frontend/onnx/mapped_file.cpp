#include "frontend/onnx/mapped_file.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera::onnx {

namespace {
Diagnostic system_error(ErrorCode code, const std::string& path, const std::string& what, int error) {
  Location where;
  where.file = path;
  return {error == ENOMEM ? ErrorCode::OutOfMemory : code, std::move(where), what + ": " + std::strerror(error)};
}
} // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path, ErrorCode code) {
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error(code, path, "cannot open the file", errno);
  struct stat st {};
  if (::fstat(fd, &st) != 0) {
    int error = errno;
    ::close(fd);
    return system_error(code, path, "cannot examine the file", error);
  }
  if (!S_ISREG(st.st_mode)) {
    ::close(fd);
    Location where;
    where.file = path;
    return Diagnostic(code, std::move(where),
                      S_ISDIR(st.st_mode) ? "is a folder, not a file" : "is not a regular file");
  }
  auto size = static_cast<size_t>(st.st_size);
  void* data = nullptr;
  if (size != 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      int error = errno;
      ::close(fd);
      return system_error(code, path, "cannot map the file", error);
    }
  }
  ::close(fd); // the mapping keeps the file
  return std::shared_ptr<const MappedFile>(new MappedFile(static_cast<const char*>(data), size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

void MappedFile::forget(std::string_view range) const {
  auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto first = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  auto last = reinterpret_cast<uintptr_t>(range.data() + range.size()) / page * page;
  // Only advice: nothing depends on its success.
  if (last > first) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

} // namespace tessera::onnx
