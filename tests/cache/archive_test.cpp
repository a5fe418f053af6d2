// Entries as one file.
#include "harness.h"
#include "runtime/cache/archive.h"

namespace tessera::cache_test {
namespace {

class Archived : public testing::Test {
protected:
  void SetUp() override {
    {
      Cache cache(from_.path(), true);
      for (uint64_t key = 0; key < 10; ++key) store(cache, key);
      store(cache, 20, 50, EntryKind::Choice);
    }
    file_ = from_.path() + "/archive";
    auto exported = export_cache(from_.path(), "the records", file_);
    ASSERT_TRUE(exported.ok()) << exported.error().str();
    EXPECT_EQ(exported->entries, 12);
    EXPECT_EQ(exported->damaged, 0);
    EXPECT_EQ(exported->bytes, static_cast<int64_t>(fs::file_size(file_)));
  }
  Folder from_, to_;
  std::string file_;
};

TEST_F(Archived, FillsAnotherFolder) {
  auto archive = Archive::open(file_);
  ASSERT_TRUE(archive.ok()) << archive.error().str();
  auto imported = import_cache(to_.path(), *archive, INT64_MAX);
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  EXPECT_EQ(imported->added, 11);
  EXPECT_EQ(imported->present, 0);
  EXPECT_EQ(imported->bytes, bytes(to_.path()));
  Cache cache(to_.path(), true);
  for (uint64_t key = 0; key < 10; ++key) EXPECT_TRUE(has(cache, key));
  EXPECT_TRUE(has(cache, 20, 50, EntryKind::Choice));
  EXPECT_TRUE(problems(to_.path()).empty());
  int records = 0;
  for (const Entry& e : archive->entries()) {
    if (e.kind != EntryKind::Records) continue;
    ++records;
    EXPECT_EQ(e.payload, "the records");
  }
  EXPECT_EQ(records, 1);

  // Once more: nothing is new, and what was damaged meanwhile is replaced.
  write(files(to_.path()).at(3), "damaged");
  imported = import_cache(to_.path(), *archive, INT64_MAX);
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->added, 1);
  EXPECT_EQ(imported->present, 10);
  EXPECT_TRUE(problems(to_.path()).empty());
}

TEST_F(Archived, TheFolderIsBounded) {
  auto archive = Archive::open(file_);
  ASSERT_TRUE(archive.ok());
  ASSERT_TRUE(import_cache(to_.path(), *archive, 10'000).ok());
  EXPECT_LE(bytes(to_.path()), 10'000);
  EXPECT_GT(bytes(to_.path()), 0);
}

TEST_F(Archived, OfADamagedOneNothingIsTaken) {
  const std::string good = read(file_);
  auto expect_refused = [&](const std::string& text) {
    write(file_, text);
    auto archive = Archive::open(file_);
    ASSERT_FALSE(archive.ok());
    EXPECT_EQ(info(archive.error().code).name, info(ErrorCode::CorruptFile).name) << archive.error().str();
    EXPECT_EQ(archive.error().location.file, file_);
  };
  for (size_t bytes = 0; bytes < good.size(); bytes += 211) expect_refused(good.substr(0, bytes));
  expect_refused(good + "x");
  for (size_t at = 0; at < good.size(); at += at < 400 ? 1 : 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    expect_refused(bad);
  }
}

TEST_F(Archived, LeavesDamagedEntriesOut) {
  write(files(from_.path()).at(0), "damaged");
  auto exported = export_cache(from_.path(), "", file_);
  ASSERT_TRUE(exported.ok());
  EXPECT_EQ(exported->entries, 10);
  EXPECT_EQ(exported->damaged, 1);
  EXPECT_EQ(Archive::open(file_).value().entries().size(), 10U);
}

TEST_F(Archived, AFolderThatOthersMayWriteIsRefused) {
  auto archive = Archive::open(file_);
  ASSERT_TRUE(archive.ok());
  ASSERT_EQ(::chmod(to_.path().c_str(), 0777), 0);
  auto imported = import_cache(to_.path(), *archive, INT64_MAX);
  ASSERT_FALSE(imported.ok());
  EXPECT_NE(imported.error().message.find("mode 0777"), std::string::npos) << imported.error().str();
  EXPECT_TRUE(files(to_.path()).empty());
}

} // namespace
} // namespace tessera::cache_test
