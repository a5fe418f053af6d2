// Entries of every kind: found again, damaged, written by several processes, by processes that are killed, to disks that
// are full or read-only.
#include "harness.h"
#include <csignal>
#include <sys/mount.h>
#include <sys/resource.h>

namespace tessera::cache_test {
namespace {

constexpr EntryKind kKinds[] = {EntryKind::Kernel, EntryKind::Choice, EntryKind::Plan, EntryKind::Digest};

TEST(Cache, FindsWhatWasStoredByKindAndKey) {
  Folder folder;
  for (EntryKind kind : kKinds) {
    Cache cache(folder.path(), true);
    EXPECT_FALSE(cache.find(kind, {1, 7}));
    store(cache, 1, 3000, kind);
    store(cache, 2, 0, kind);
    EXPECT_TRUE(has(cache, 1, 3000, kind) && has(cache, 2, 0, kind));
    EXPECT_FALSE(cache.find(kind, {3, 7}));
    EXPECT_TRUE(cache.warnings().empty());
  }
  EXPECT_EQ(files(folder.path()).size(), 2 * std::size(kKinds))
      << "kinds do not share entries, and no temporary files stay";
  EXPECT_TRUE(problems(folder.path()).empty());
  Cache off(folder.path(), false);
  EXPECT_FALSE(off.find(kKinds[0], {1, 7}));
}

// Each byte in front of the payload, and some of the payload, flipped; lengths that are wrong.
TEST(Cache, DamagedEntriesAreNotTakenAndAreReplaced) {
  for (EntryKind kind : kKinds) {
    Folder folder;
    {
      Cache cache(folder.path(), true);
      store(cache, 1, 3000, kind);
    }
    const fs::path entry = files(folder.path()).at(0);
    const std::string good = read(entry);
    std::vector<std::string> bad = {"",
                                    good.substr(0, 7),
                                    good.substr(0, 71),
                                    good.substr(0, good.size() - 1),
                                    good + "x",
                                    std::string(good.size(), '\0'),
                                    std::string(good.size(), '\xff')};
    const size_t head = good.size() - content(1).size();
    for (size_t at = 0; at < good.size(); at += at < head ? 1 : 500)
      for (unsigned bit : {0U, 7U}) {
        bad.push_back(good);
        bad.back()[at] = static_cast<char>(bad.back()[at] ^ (1U << bit));
      }
    for (const std::string& text : bad) {
      write(entry, text);
      Cache cache(folder.path(), true);
      EXPECT_FALSE(cache.find(kind, {1, 7}));
      EXPECT_FALSE(cache.find(kind, {1, 7}));
      ASSERT_EQ(cache.warnings().size(), 1U) << "one warning, however many entries are damaged";
      EXPECT_NE(cache.warnings()[0].find(entry.string() + " is damaged"), std::string::npos) << cache.warnings()[0];
      ASSERT_EQ(problems(folder.path()).size(), 1U);
      store(cache, 1, 3000, kind);
      EXPECT_TRUE(has(cache, 1, 3000, kind));
      EXPECT_TRUE(problems(folder.path()).empty());
    }
  }
}

TEST(Cache, AnEntryUnderAnotherNameIsDamaged) {
  Folder folder;
  Cache cache(folder.path(), true);
  store(cache, 1);
  store(cache, 2);
  const auto two = files(folder.path());
  write(two[0], read(two[1]));
  EXPECT_EQ(problems(folder.path()).size(), 1U);
  EXPECT_NE(has(cache, 1), has(cache, 2));
}

TEST(Cache, VerifyNamesAndRepairRemovesWhatIsNoEntry) {
  Folder folder;
  {
    Cache cache(folder.path(), true);
    for (uint64_t key = 0; key < 5; ++key) store(cache, key);
  }
  const auto all = files(folder.path());
  const fs::path in = all[0].parent_path();
  write(all[1], "short");
  write(in / "stranger", "x");
  write(in / (std::string(32, 'a') + ".o"), "of another format");
  write(in / ".tessera-0123456789abcdef", "unfinished");
  fs::remove(all[2]);
  fs::create_symlink(all[3], all[2]);
  EXPECT_EQ(problems(folder.path()).size(), 3U);
  EXPECT_EQ(problems(folder.path(), true).size(), 3U);
  EXPECT_TRUE(problems(folder.path()).empty());
  EXPECT_EQ(files(folder.path()).size(), 4U) << "three entries, and the file of another format";
  EXPECT_TRUE(fs::exists(all[3])) << "the link is removed, not what it leads to";
}

TEST(Cache, AWriteThatFailsHalfwayLeavesNothing) {
  Folder folder;
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              rlimit limit{1000, 1000};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              Cache cache(folder.path(), true);
              store(cache, 1, 5000);
              if (cache.warnings().size() != 1 || cache.warnings()[0].find("File too large") == std::string::npos)
                return 2;
              if (cache.find(EntryKind::Kernel, {1, 7})) return 3;
              store(cache, 2, 100);
              return has(cache, 2, 100) ? 0 : 4;
            }),
            0);
  EXPECT_EQ(files(folder.path()).size(), 1u) << "the temporary file is gone";
}

TEST(Cache, AFullDiskIsOneWarning) {
  Folder folder;
  const std::string disk = folder.path() + "/disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k,mode=700") != 0)
    GTEST_SKIP() << "this process may not mount a small disk";
  {
    Cache cache(disk, true);
    store(cache, 1, 3000);
    for (uint64_t key = 2; key < 40; ++key) store(cache, key, 1 << 20);
    ASSERT_EQ(cache.warnings().size(), 1u);
    EXPECT_NE(cache.warnings()[0].find("No space left on device"), std::string::npos) << cache.warnings()[0];
    EXPECT_TRUE(has(cache, 1)) << "what was there before stays";
    EXPECT_EQ(files(disk).size(), 1U);
  }
  EXPECT_TRUE(problems(disk).empty());
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

TEST(Cache, AReadOnlyDiskIsReadAndOneWarning) {
  Folder folder;
  const std::string disk = folder.path() + "/disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m,mode=700") != 0)
    GTEST_SKIP() << "this process may not mount a disk";
  {
    Cache cache(disk, true);
    store(cache, 1);
  }
  set_age(files(disk).at(0), 100000);
  ASSERT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m,mode=700"), 0);
  {
    Cache cache(disk, true);
    EXPECT_TRUE(has(cache, 1)) << "though its time of use cannot be noted";
    for (const auto& w : cache.warnings()) ADD_FAILURE() << w;
    EXPECT_TRUE(cache.warnings().empty());
    for (uint64_t key = 2; key < 5; ++key) store(cache, key);
    ASSERT_EQ(cache.warnings().size(), 1U);
    EXPECT_NE(cache.warnings()[0].find("Read-only file system"), std::string::npos) << cache.warnings()[0];
    EXPECT_TRUE(has(cache, 1));
  }
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

TEST(Cache, SeveralProcessesWriteAndReadTheSameEntries) {
  Folder folder;
  constexpr uint64_t kKeys = 40, kRounds = 20;
  std::vector<pid_t> children;
  for (int process = 0; process < 3; ++process) {
    pid_t pid = ::fork();
    if (pid == 0) {
      Cache cache(folder.path(), true);
      for (uint64_t round = 0; round < kRounds; ++round)
        for (uint64_t key = 0; key < kKeys; ++key) {
          // Each entry is there whole or not at all, whoever writes it at the moment.
          if (cache.find(EntryKind::Kernel, {key, 7}) && !has(cache, key)) ::_exit(1);
          store(cache, key);
          if (!has(cache, key)) ::_exit(2);
        }
      ::_exit(cache.warnings().empty() ? 0 : 3);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_EQ(files(folder.path()).size(), kKeys);
  EXPECT_TRUE(problems(folder.path()).empty());
}

// A writing process is killed at some moment, many times: what is there is whole, and what is unfinished is removed
// once it is old.
TEST(Cache, AWriterThatIsKilledLeavesNoDamage) {
  Folder folder;
  for (int round = 0; round < 40; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      (void)!::write(ready[1], "x", 1);
      for (uint64_t key = 0;; ++key) {
        Cache cache(folder.path(), true); // its end writes the folder's usage
        store(cache, key % 50, 100000);
      }
    }
    char x = 0;
    ASSERT_EQ(::read(ready[0], &x, 1), 1);
    ::usleep(static_cast<useconds_t>(500 + 137 * round));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
    ASSERT_TRUE(problems(folder.path()).empty()) << "round " << round;
  }
  Cache cache(folder.path(), true);
  uint64_t found = 0;
  for (uint64_t key = 0; key < 50; ++key) found += has(cache, key, 100000);
  EXPECT_GT(found, 0U);
  EXPECT_TRUE(cache.warnings().empty());
  store(cache, 60);
  EXPECT_TRUE(has(cache, 60)) << "no lock of a killed process is left";
  for (const auto& file : files(folder.path())) set_age(file, 700);
  auto evicted = evict(folder.path(), {});
  ASSERT_TRUE(evicted.ok()) << evicted.error().str();
  for (const auto& file : files(folder.path())) EXPECT_EQ(file.extension(), ".tsc") << file;
  EXPECT_EQ(files(folder.path()).size(), found + 1);
}

TEST(Cache, TheFolderComesFromTheEnvironment) {
  auto with = [](const char* cache, const char* xdg, const char* home, const char* service = nullptr) {
    const Variable a("TESSERA_CACHE_DIR", cache), b("XDG_CACHE_HOME", xdg), c("HOME", home);
    const Variable d("CACHE_DIRECTORY", service);
    return cache_directory("");
  };
  EXPECT_EQ(with("/c", "/x", "/h"), "/c");
  EXPECT_EQ(with("", "/x", "/h"), "/x/tessera") << "an empty variable is none";
  EXPECT_EQ(with(nullptr, "/x", "/h"), "/x/tessera");
  EXPECT_EQ(with(nullptr, nullptr, "/h"), "/h/.cache/tessera");
  EXPECT_EQ(with(nullptr, nullptr, "/h", "/s"), "/h/.cache/tessera");
  EXPECT_EQ(with(nullptr, nullptr, nullptr, "/s:/t"), "/s/tessera") << "a service of systemd";
  EXPECT_EQ(with(nullptr, nullptr, nullptr), "") << "nowhere: it is off";
  EXPECT_EQ(cache_directory("/given"), "/given");
}

// A mapped payload stays as it was whatever happens to the file.
TEST(CacheMap, ShowsTheEntryAsItWas) {
  const Folder folder;
  Cache cache(folder.path(), true);
  EXPECT_FALSE(cache.map(EntryKind::Plan, {1, 7}));
  store(cache, 1, 10000, EntryKind::Plan);
  auto mapped = cache.map(EntryKind::Plan, {1, 7});
  ASSERT_TRUE(mapped);
  const auto text = [&] { return std::string(reinterpret_cast<const char*>(mapped->data), mapped->bytes); };
  EXPECT_EQ(text(), content(1, 10000));
  cache.store(EntryKind::Plan, {1, 7}, {}, "another one");
  EXPECT_EQ(text(), content(1, 10000));
  ASSERT_TRUE(evict(folder.path(), {.limit = 0}).ok());
  EXPECT_EQ(text(), content(1, 10000));
  EXPECT_FALSE(cache.map(EntryKind::Plan, {1, 7}));
}

TEST(CacheMap, RefusesWhatFindRefuses) {
  const Folder folder;
  Cache cache(folder.path(), true);
  store(cache, 1, 100, EntryKind::Plan);
  const fs::path file = files(folder.path()).at(0);
  const std::string whole = read(file);
  for (const std::string& bytes : {std::string(), whole.substr(0, 50), whole + "x"}) {
    write(file, bytes);
    EXPECT_FALSE(Cache(folder.path(), true).map(EntryKind::Plan, {1, 7}));
  }
  write(file, whole);
  EXPECT_TRUE(Cache(folder.path(), true).map(EntryKind::Plan, {1, 7}));
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  EXPECT_FALSE(Cache(folder.path(), true).map(EntryKind::Plan, {1, 7}));
  Cache off(folder.path(), false);
  EXPECT_FALSE(off.map(EntryKind::Plan, {1, 7}));
}

// A payload that its reader finds to be damaged is reported as any other.
TEST(CacheMap, DamageThatTheReaderFinds) {
  const Folder folder;
  Cache cache(folder.path(), true);
  store(cache, 1, 100, EntryKind::Plan);
  cache.report_damaged(EntryKind::Plan, {1, 7}, "it says nothing");
  ASSERT_EQ(cache.warnings().size(), 1U);
  EXPECT_NE(cache.warnings()[0].find(files(folder.path()).at(0).string() + " is damaged: it says nothing"),
            std::string::npos)
      << cache.warnings()[0];
}

} // namespace
} // namespace tessera::cache_test
