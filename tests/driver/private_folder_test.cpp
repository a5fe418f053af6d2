// Whom a cache trusts: folders and entries of others, or that others may write, are refused with one warning, entries
// that are no files are refused at once, and the compile does without.
#include "harness.h"
#include "runtime/cache/cache.h"
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::driver_test {
namespace {

namespace fs = std::filesystem;
using Missing = PrivateFolder::Missing;

constexpr uid_t kSomebody = 4711;

class Private : public testing::Test {
protected:
  void SetUp() override { ::alarm(120); } // a test that waits ends by a signal
  void TearDown() override { ::alarm(0); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  void make(const std::string& name, mode_t mode) const {
    fs::create_directories(path(name));
    ASSERT_EQ(::chmod(path(name).c_str(), mode), 0);
  }
  static unsigned mode(const std::string& path) {
    struct stat st {};
    EXPECT_EQ(::lstat(path.c_str(), &st), 0) << path;
    return st.st_mode & 07777;
  }
  static void expect_refused(const Diagnostic& error, const std::vector<std::string>& texts) {
    for (const auto& text : texts)
      EXPECT_NE(error.str().find(text), std::string::npos) << text << " in " << error.str();
  }
  TemporaryFolder folder_;
};

std::vector<std::string> files(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& e : fs::recursive_directory_iterator(folder))
    if (!e.is_directory() && e.path().filename() != "usage") out.push_back(e.path().string());
  return out;
}

CompileReport compile_and_run(const std::string& folder) {
  constexpr const char* kText = R"(
graph @main(%x: f32[n]) -> (%y: f32[n]) where n in [0, ?] {
  %a = exp(%x) : f32[n]
  %y = sqrt(%a) : f32[n]
}
)";
  auto c = compile_it(parse(kText), options(folder));
  expect_right(parse(kText), c, {{"x", random(DType::F32, {100})}}, 1e-5);
  return c.report;
}

TEST_F(Private, IsMadeForTheUserAloneWhateverTheUmask) {
  for (mode_t umask : {0, 022, 0277}) {
    std::string top = path("u" + std::to_string(umask));
    mode_t before = ::umask(umask);
    {
      Cache cache(top + "/below", true);
      cache.store(EntryKind::Kernel, {1, 2}, {}, "ab");
      EXPECT_TRUE(cache.find(EntryKind::Kernel, {1, 2}));
      EXPECT_TRUE(cache.warnings().empty());
      auto folder = PrivateFolder::open(top, Missing::Leave);
      ASSERT_TRUE(folder.ok()) << folder.error().str();
      EXPECT_TRUE((*folder)->lock("lock").ok());
    }
    ::umask(before);
    EXPECT_EQ(mode(top), 0700u);
    for (const auto& e : fs::recursive_directory_iterator(top))
      EXPECT_EQ(mode(e.path().string()), e.is_directory() ? 0700u : 0600u) << e.path();
  }
}

TEST_F(Private, FoldersThatOthersMayWriteAreRefused) {
  EXPECT_FALSE(PrivateFolder::open(path("none"), Missing::Leave).value());
  for (mode_t m : {0777, 0770, 0757, 01777, 02775}) {
    make("a", m);
    auto folder = PrivateFolder::open(path("a"), Missing::Make);
    ASSERT_FALSE(folder.ok()) << std::oct << m;
    char text[16];
    std::snprintf(text, sizeof text, "mode %04o", m);
    expect_refused(folder.error(), {path("a"), text, "a folder of user " + std::to_string(::geteuid()),
                                    "group and others cannot write", "TESSERA_CACHE_DIR"});
  }
  for (mode_t m : {0700, 0755, 0500}) {
    make("a", m);
    EXPECT_TRUE(PrivateFolder::open(path("a"), Missing::Leave).ok());
  }
  make("a", 0755);
  make("a/b", 0722);
  expect_refused(PrivateFolder::open(path("a"), Missing::Leave).value()->below("b", Missing::Leave).error(),
                 {path("a/b"), "mode 0722"});
}

TEST_F(Private, FoldersAboveThatOthersMayWriteAreRefusedUnlessSticky) {
  make("top", 0777);
  make("top/cache", 0700);
  expect_refused(PrivateFolder::open(path("top/cache"), Missing::Leave).error(), {path("top"), "mode 0777", "1777"});
  expect_refused(PrivateFolder::open(path("top/new/cache"), Missing::Make).error(), {path("top")});
  EXPECT_FALSE(fs::exists(path("top/new")));
  make("top", 01777);
  EXPECT_TRUE(PrivateFolder::open(path("top/cache"), Missing::Leave).ok());
  // The folders that a link leads through count.
  make("top", 0777);
  fs::create_symlink(path("top"), path("link"));
  expect_refused(PrivateFolder::open(path("link/cache"), Missing::Leave).error(), {path("top")});
  make("top", 0755);
  EXPECT_TRUE(PrivateFolder::open(path("link/cache"), Missing::Leave).ok());
  EXPECT_TRUE(PrivateFolder::open(path("link/../top/./cache/"), Missing::Leave).ok());
  fs::create_symlink("loop", path("loop"));
  EXPECT_FALSE(PrivateFolder::open(path("loop/cache"), Missing::Make).ok());
}

TEST_F(Private, WhatBelongsToOthersIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  make("a", 0700);
  ASSERT_EQ(::chown(path("a").c_str(), kSomebody, 0), 0);
  expect_refused(PrivateFolder::open(path("a"), Missing::Leave).error(), {"user 4711", "mode 0700", "user 0"});
  make("tmp", 01777);
  make("mine", 0700);
  fs::create_symlink(path("mine"), path("tmp/link"));
  EXPECT_TRUE(PrivateFolder::open(path("tmp/link"), Missing::Leave).ok());
  ASSERT_EQ(::lchown(path("tmp/link").c_str(), kSomebody, 0), 0);
  expect_refused(PrivateFolder::open(path("tmp/link"), Missing::Leave).error(), {"symbolic link of user 4711"});
}

TEST_F(Private, EntriesAreFilesOfTheUsersOwn) {
  make("a", 0700);
  auto folder = PrivateFolder::open(path("a"), Missing::Leave).value();
  ASSERT_TRUE(folder->write("file", {"te", "xt"}).ok());
  EXPECT_EQ(folder->read("file").value(), "text");
  EXPECT_FALSE(folder->read("none").value());
  ASSERT_EQ(::mkfifo(path("a/fifo").c_str(), 0600), 0);
  fs::create_symlink("file", path("a/link"));
  fs::create_directory(path("a/folder"));
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"fifo", "is a FIFO"}, {"link", "is a symbolic link"}, {"folder", "is a folder"}};
  for (const auto& [name, text] : kinds) {
    expect_refused(folder->read(name).error(), {path("a/" + name), text, "a regular file is expected"});
    EXPECT_FALSE(folder->lock(name).ok());
  }
  ASSERT_EQ(::chmod(path("a/file").c_str(), 0620), 0);
  expect_refused(folder->read("file").error(), {path("a/file"), "a regular file of user", "mode 0620"});
  if (::geteuid() == 0) {
    ASSERT_EQ(::chmod(path("a/file").c_str(), 0600), 0);
    ASSERT_EQ(::chown(path("a/file").c_str(), kSomebody, 0), 0);
    expect_refused(folder->read("file").error(), {"user 4711"});
    EXPECT_FALSE(folder->lock("file").ok());
  }
  ASSERT_TRUE(folder->write("file", {"new"}).ok()) << "it is replaced, not written into";
  EXPECT_EQ(folder->read("file").value(), "new");
}

// Machine code that is not the kernel's, under its name and with a hash that fits.
void plant(const std::string& folder) {
  const std::string file = read_file(files(folder).at(0)).value();
  Cache(folder, true).store(EntryKind::Kernel, decode_entry(file).value().key, {}, std::string(1000, 'x'));
}

TEST_F(Private, PlantedObjectsAreNotTaken) {
  make("cache", 0700);
  compile_and_run(path("cache"));
  plant(path("cache"));
  const auto entry = files(path("cache")).at(0), sub = fs::path(entry).parent_path().string();
  const auto planted = fs::file_size(entry);
  for (const std::string& open : {path("cache"), path("cache/objects"), sub}) {
    ASSERT_EQ(::chmod(open.c_str(), 0777), 0);
    auto report = compile_and_run(path("cache"));
    EXPECT_EQ(report.cache_hits, 0);
    ASSERT_EQ(report.cache_warnings.size(), 1u) << open;
    EXPECT_NE(report.cache_warnings[0].find(open), std::string::npos) << report.cache_warnings[0];
    EXPECT_NE(report.cache_warnings[0].find("mode 0777"), std::string::npos) << report.cache_warnings[0];
    EXPECT_EQ(files(path("cache")).size(), 1u) << "nothing is written there";
    EXPECT_EQ(fs::file_size(entry), planted);
    ASSERT_EQ(::chmod(open.c_str(), 0700), 0);
  }
}

TEST_F(Private, AnEntryThatIsNotTrustedIsCompiledAnewAndReplaced) {
  make("cache", 0700);
  compile_and_run(path("cache"));
  const auto entry = files(path("cache")).at(0);
  auto expect_replaced = [&](const std::string& text) {
    auto report = compile_and_run(path("cache"));
    EXPECT_EQ(report.cache_hits, 0);
    ASSERT_EQ(report.cache_warnings.size(), 1u);
    EXPECT_NE(report.cache_warnings[0].find(text), std::string::npos) << report.cache_warnings[0];
    report = compile_and_run(path("cache"));
    EXPECT_EQ(report.cache_hits, 1);
    EXPECT_TRUE(report.cache_warnings.empty());
  };
  ASSERT_EQ(::chmod(entry.c_str(), 0606), 0);
  expect_replaced("mode 0606");
  fs::rename(entry, path("elsewhere.o"));
  fs::create_symlink(path("elsewhere.o"), entry);
  expect_replaced("is a symbolic link");
  EXPECT_TRUE(fs::exists(path("elsewhere.o")));
  fs::remove(entry);
  ASSERT_EQ(::mkfifo(entry.c_str(), 0600), 0);
  expect_replaced("is a FIFO");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(entry.c_str(), kSomebody, 0), 0);
    expect_replaced("user 4711");
  }
}

} // namespace
} // namespace tessera::driver_test
