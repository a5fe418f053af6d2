// Opening what is no regular file: an error that names the kind, at once. Every test ends by a signal if it waits.
#include "base/absolute_path.h"
#include "base/file.h"
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera-files-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::alarm(60);
  }
  void TearDown() override {
    ::alarm(0);
    fs::remove_all(folder_);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string fifo(const std::string& name) const {
    EXPECT_EQ(::mkfifo(path(name).c_str(), 0600), 0);
    return path(name);
  }
  [[nodiscard]] size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  std::string folder_;
};

template <class T>
void expect_error(const Result<T>& result, const std::vector<std::string>& texts) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::FileError);
  for (const auto& text : texts)
    EXPECT_NE(result.error().str().find(text), std::string::npos) << text << " in " << result.error().str();
}

TEST_F(Files, WhatIsNoRegularFileIsNamed) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  fs::create_directory(path("folder"));
  fs::create_symlink(fifo("fifo"), path("link"));
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {path("fifo"), "is a FIFO, a regular file is expected"},
      {path("link"), "is a FIFO"},
      {path("folder"), "is a folder"},
      {"/dev/null", "is a character device"},
      {path("socket"), "cannot open"},
      {path("none"), "No such file"}};
  for (const auto& [file, text] : kinds) {
    expect_error(open_file(file), {file, text});
    expect_error(read_file(file), {file, text});
    expect_error(map_file(file), {file, text});
    expect_error(read_npy(file), {file, text});
  }
  EXPECT_EQ(map_file(path("fifo"), ErrorCode::BadWeights).error().code, ErrorCode::BadWeights);
  ::close(socket);
}

TEST_F(Files, AreReadAsTheyAre) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{1} << 16, (size_t{1} << 16) + 1, size_t{1000000}}) {
    std::string text(bytes, 'x');
    if (!text.empty()) text.back() = 'y';
    ASSERT_TRUE(write_file(path("file"), {text.substr(0, bytes / 2), text.substr(bytes / 2)}).ok());
    EXPECT_EQ(read_file(path("file")).value(), text);
    Storage mapped = map_file(path("file")).value();
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(mapped.data), mapped.bytes), text);
  }
  EXPECT_FALSE(read_file("/proc/self/status").value().empty()) << "a file without a size";
}

TEST_F(Files, WritingNeverWaitsForAReader) {
  const std::string pipe = fifo("fifo");
  expect_error(write_file(pipe, {"x"}), {pipe, "is a FIFO", "that somebody reads"});
  expect_error(write_file(folder_, {"x"}), {folder_, "is a folder"});
  expect_error(write_file(path("none/file"), {"x"}), {"none/file", "No such file"});
  EXPECT_TRUE(write_file("/dev/null", {"x"}).ok());
  // With a reader it goes through, more of it than a pipe holds.
  const std::string text(1 << 20, 'x');
  std::string got;
  std::thread reader([&] {
    std::ifstream in(pipe, std::ios::binary);
    got.assign(std::istreambuf_iterator<char>(in), {});
  });
  Status status = write_file(pipe, {text});
  while (!status.ok()) { // until the reader has opened it
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = write_file(pipe, {text});
  }
  reader.join();
  EXPECT_EQ(got, text);
}

TEST_F(Files, NewOnesAppearWholeOrNotAtAll) {
  {
    auto file = NewFile::create(path("file"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("half", 4).ok());
  }
  EXPECT_EQ(entries(), 0u) << "without commit() nothing remains";
  for (const char* text : {"one", "two"}) {
    auto file = NewFile::create(path("file"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write(text, 3).ok());
    NewFile moved = std::move(*file);
    ASSERT_TRUE(moved.commit(true).ok());
  }
  EXPECT_EQ(read_file(path("file")).value(), "two");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, NothingRemainsOfAProcessThatIsKilled) {
  ASSERT_TRUE(write_file(path("file"), {"old"}).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = NewFile::create(path("file"));
    if (file.ok() && file->write("half", 4).ok()) ::raise(SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  // A file that was left behind, on file systems without files that have no name, goes with the next new file.
  ASSERT_TRUE(NewFile::create(path("file")).ok());
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(read_file(path("file")).value(), "old");
}

TEST_F(Files, ThoseThatProcessesLeftBehindAreRemoved) {
  const std::string left = path(".tessera-0123456789abcdef"), written = path(".tessera-fedcba9876543210");
  for (const std::string& file : {left, written, path(".tessera-notes"), path("tessera-0123456789abcdef")})
    ASSERT_TRUE(write_file(file, {"half"}).ok());
  FileDescriptor writer = open_file(written).value();
  ASSERT_EQ(::flock(writer.get(), LOCK_EX | LOCK_NB), 0);
  { EXPECT_TRUE(NewFile::create(path("file")).ok()); }
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(written)) << "it is being written";
  EXPECT_EQ(entries(), 3u);
}

TEST_F(Files, PathsAreMadeAbsolute) {
  EXPECT_EQ(absolute_path("/a/../b"), "/a/../b");
  EXPECT_EQ(absolute_path("b/c"), fs::current_path().string() + "/b/c");
}

TEST_F(Files, NewOnesReplaceNothingButFiles) {
  expect_error(NewFile::create(fifo("fifo")), {"fifo", "is a FIFO, a regular file, or nothing, is expected"});
  expect_error(NewFile::create(folder_), {folder_, "is a folder"});
  expect_error(NewFile::create("/dev/null"), {"/dev/null", "is a character device"});
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
  EXPECT_EQ(entries(), 1u);
}

} // namespace
} // namespace tessera
