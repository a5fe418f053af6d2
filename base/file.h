// Files by path. Reading opens without waiting and knows that it has a regular file before it reads a byte, so that a
// FIFO or a device in the place of a file is an error and not a process that hangs. No other code opens files
// (tests/structure checks that), but runtime/cache/private_folder.h, which opens the entries of a folder.
#pragma once
#include "base/tensor.h"
#include <initializer_list>
#include <string_view>
#include <utility>

namespace tessera {

// Owns a file descriptor; -1: none.
class FileDescriptor {
public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~FileDescriptor();
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int close(); // as the system's; what the destructor does without telling
  [[nodiscard]] int release() { return std::exchange(fd_, -1); } // another one closes it

private:
  int fd_ = -1;
};

// "a regular file", "a folder", "a FIFO" ...: what st_mode says.
[[nodiscard]] std::string_view file_kind(unsigned st_mode);
// "cannot WHAT: " and the system's text for `error`, an errno. OutOfMemory instead of `code` where that is what it
// says; a full disk is named in a note.
[[nodiscard]] Diagnostic file_error(ErrorCode code, const std::string& path, const std::string& what, int error);

// Flags of open() with which a file is opened that may turn out to be anything.
[[nodiscard]] int read_flags();
// Takes what was opened with read_flags() and is to be a regular file. Error `code` with the kind seen.
[[nodiscard]] Result<FileDescriptor> regular_file(FileDescriptor fd, const std::string& path, ErrorCode code);

// Opens a regular file for reading. Errors: `code`, with the path and the system's text or the kind that was seen.
[[nodiscard]] Result<FileDescriptor> open_file(const std::string& path, ErrorCode code = ErrorCode::FileError);
// Reads `bytes` bytes, or fewer at the end of the file; the number that was read.
[[nodiscard]] Result<size_t> read_some(const FileDescriptor& fd, const std::string& path, void* to, size_t bytes);
// The bytes from here to the end of the file.
[[nodiscard]] Result<std::string> read_rest(const FileDescriptor& fd, const std::string& path);
[[nodiscard]] Result<std::string> read_file(const std::string& path);

// Maps a whole regular file read-only; the storage keeps the map, which mapped_file.h watches. An empty file gives empty
// storage.
[[nodiscard]] Result<Storage> map_file(const std::string& path, ErrorCode code = ErrorCode::FileError);
[[nodiscard]] Result<Storage> map_file(const FileDescriptor& fd, const std::string& path,
                                       ErrorCode code = ErrorCode::FileError);
// Advice that whole pages in a map are not needed now; they return from the file when they are read.
void drop_pages(const void* data, size_t bytes);

// Writes a file anew. The path may lead to a FIFO that somebody reads, or to a character device such as /dev/null; any
// other thing that is no regular file is an error. Never waits for a reader to come. Errors: FileError.
[[nodiscard]] Status write_file(const std::string& path, std::initializer_list<std::string_view> pieces);

// A file that appears whole or not at all. Until commit() it has no name, so that nothing remains of a process that ends
// before. On file systems without such files (O_TMPFILE), and in the moment in which it takes another file's place, its
// name begins with kTemporaryPrefix, and it is locked; create() removes such files that nobody has locked.
inline constexpr std::string_view kTemporaryPrefix = ".tessera-";
class NewFile {
public:
  // With the mode that the umask leaves. Error FileError, also where something else than a regular file is at `path`.
  [[nodiscard]] static Result<NewFile> create(const std::string& path);
  // `name` in an open folder, readable and writable for the user alone; `path` is for messages.
  [[nodiscard]] static Result<NewFile> create_private(int folder, const std::string& name, const std::string& path);
  NewFile(NewFile&&) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile(); // without commit(), nothing remains

  [[nodiscard]] Status write(const void* data, size_t bytes);
  [[nodiscard]] Status write_at(int64_t offset, const void* data, size_t bytes); // over what was written
  // `sync`: returns when the contents are on disk.
  [[nodiscard]] Status commit(bool sync);

private:
  NewFile(FileDescriptor folder, std::string name, std::string path);
  [[nodiscard]] Status open(unsigned mode);
  FileDescriptor folder_, file_;
  std::string name_, temporary_, path_; // temporary_: the name that it has now; empty: none, or its own
};

} // namespace tessera
