// The size of the folder: its bound, what is evicted first, several processes.
#include "base/environment.h"
#include "harness.h"
#include "runtime/cache/choices.h"
#include <thread>

namespace tessera::cache_test {
namespace {

constexpr int64_t kLimit = 200'000;
constexpr const char* kLimitText = "200k";

TEST(Eviction, SizesAreRead) {
  for (const auto& [text, bytes] : std::vector<std::pair<std::string, int64_t>>{{"0", 0},
                                                                                {"4096", 4096},
                                                                                {"64k", 64'000},
                                                                                {"64K", 64'000},
                                                                                {"1.5M", 1'500'000},
                                                                                {"2G", 2'000'000'000},
                                                                                {"2GB", 2'000'000'000},
                                                                                {"2GiB", int64_t{2} << 30},
                                                                                {"1Ti", int64_t{1} << 40},
                                                                                {"7B", 7}})
    EXPECT_EQ(parse_bytes(text), bytes) << text;
  for (const char* text : {"", "x", "-1", "1X", "1kk", "k", "1e30", "nan", "1 G", "1Gii"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

TEST(Eviction, TheLimitComesFromTheEnvironment) {
  auto with = [](const char* text) {
    const Variable v("TESSERA_CACHE_LIMIT", text);
    return cache_limit();
  };
  EXPECT_EQ(with(nullptr).value(), kDefaultCacheLimit);
  EXPECT_EQ(with("").value(), kDefaultCacheLimit);
  EXPECT_EQ(with("3k").value(), 3000);
  EXPECT_EQ(with("none").value(), INT64_MAX);
  ASSERT_FALSE(with("much").ok());
  EXPECT_NE(with("much").error().message.find("'much'"), std::string::npos);
  const Variable v("TESSERA_CACHE_LIMIT", "much");
  Folder folder;
  EXPECT_EQ(Cache(folder.path(), true).warnings().size(), 1U) << "the cache works, with a warning";
}

TEST(Eviction, TheFolderStaysWithinItsLimit) {
  const Variable v("TESSERA_CACHE_LIMIT", kLimitText);
  Folder folder;
  for (uint64_t key = 0; key < 300; ++key) {
    Cache cache(folder.path(), true); // each is another compilation
    store(cache, key);
    EXPECT_TRUE(has(cache, key));
    ASSERT_LE(bytes(folder.path()), kLimit + kLimit / kUncountedShare + 4000);
  }
  {
    Cache one(folder.path(), true); // one that stores much
    for (uint64_t key = 300; key < 600; ++key) {
      store(one, key);
      ASSERT_LE(bytes(folder.path()), kLimit + 2 * kLimit / kUncountedShare + 4000);
    }
  }
  EXPECT_LE(bytes(folder.path()), kLimit);
  EXPECT_GT(bytes(folder.path()), kLimit / 2) << "it evicts no more than it must";
}

TEST(Eviction, WhatWasNotUsedForLongestGoesFirst) {
  Folder folder;
  {
    Cache cache(folder.path(), true);
    for (uint64_t key = 0; key < 40; ++key) store(cache, key);
  }
  for (const auto& file : files(folder.path())) set_age(file, 100'000);
  {
    Cache cache(folder.path(), true);
    for (uint64_t key = 0; key < 40; key += 4) EXPECT_TRUE(has(cache, key)); // a use
  }
  EvictionRules rules;
  rules.limit = bytes(folder.path()) / 3;
  auto evicted = evict(folder.path(), rules);
  ASSERT_TRUE(evicted.ok()) << evicted.error().str();
  EXPECT_LE(bytes(folder.path()), rules.limit);
  EXPECT_EQ(bytes(folder.path()), evicted->bytes_left);
  EXPECT_EQ(files(folder.path()).size(), static_cast<size_t>(evicted->files_left));
  EXPECT_EQ(evicted->files + evicted->files_left, 40);
  Cache cache(folder.path(), true);
  for (uint64_t key = 0; key < 40; key += 4) EXPECT_TRUE(has(cache, key)) << key;
}

TEST(Eviction, ByAgeFormatAndContents) {
  Folder folder;
  {
    Cache cache(folder.path(), true);
    for (uint64_t key = 0; key < 6; ++key) store(cache, key);
  }
  const auto all = files(folder.path());
  set_age(all[0], 3 * 86400);
  const fs::path other = all[0].parent_path() / (std::string(32, 'a') + ".o");
  write(other, "of another format");
  EvictionRules rules;
  rules.older_than = 2 * 86400;
  EXPECT_EQ(evict(folder.path(), rules).value().files, 1);
  EXPECT_FALSE(fs::exists(all[0]));
  EXPECT_TRUE(fs::exists(other));
  rules = {};
  rules.other_formats = true;
  EXPECT_EQ(evict(folder.path(), rules).value().files, 1);
  EXPECT_FALSE(fs::exists(other));
  rules = {};
  rules.drop = [](const Entry& e) { return e.key.lo == 3; };
  const size_t before = files(folder.path()).size();
  EXPECT_EQ(evict(folder.path(), rules).value().files, before == 5 ? 1 : 0);
  Cache cache(folder.path(), true);
  EXPECT_FALSE(has(cache, 3));
}

TEST(Eviction, AUsageThatIsWrongIsCountedAnew) {
  const Variable v("TESSERA_CACHE_LIMIT", kLimitText);
  for (const std::string& text : {std::string(), std::string("x"), std::string(24, '\xff'), std::string(1000, 'x')}) {
    Folder folder;
    {
      const Variable none("TESSERA_CACHE_LIMIT", "none");
      Cache cache(folder.path(), true);
      for (uint64_t key = 0; key < 100; ++key) store(cache, key);
    }
    ASSERT_GT(bytes(folder.path()), kLimit);
    write(folder.path() + "/usage", text);
    {
      Cache cache(folder.path(), true);
      store(cache, 100);
    }
    EXPECT_LE(bytes(folder.path()), kLimit);
  }
}

// Some processes fill the folder beyond its limit, and evict from under the others: whatever is read is right.
TEST(Eviction, ReadersAndWritersOfSeveralProcessesAreSafe) {
  const Variable v("TESSERA_CACHE_LIMIT", kLimitText);
  Folder folder;
  std::vector<pid_t> children;
  for (uint64_t process = 0; process < 3; ++process) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (uint64_t round = 0; round < 30; ++round) {
        Cache cache(folder.path(), true);
        for (uint64_t i = 0; i < 20; ++i) {
          const uint64_t key = (round * 7 + i * 13 + process * 40) % 120;
          if (cache.find(EntryKind::Kernel, {key, 7}).has_value())
            for (int again = 0; again < 2; ++again)
              if (auto found = cache.find(EntryKind::Kernel, {key, 7}))
                if (std::string(found->begin(), found->end()) != content(key)) ::_exit(1);
          store(cache, key);
        }
        if (!cache.warnings().empty()) ::_exit(2);
      }
      ::_exit(0);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_TRUE(problems(folder.path()).empty());
  EXPECT_LE(bytes(folder.path()), kLimit + 3 * kLimit / kUncountedShare + 3 * 4000);
}

// The same of threads that share one cache, as the kernels of a compile do, with choices kept in it.
TEST(Eviction, ThreadsShareACache) {
  const Variable v("TESSERA_CACHE_LIMIT", kLimitText);
  Folder folder;
  {
    auto cache = std::make_shared<Cache>(folder.path(), true);
    KeptChoices choices(cache, "maker", "device");
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; i < 60; ++i) {
          const uint64_t key = (i * 13 + t * 7) % 90;
          if (auto found = cache->find(EntryKind::Kernel, {key, 7}))
            wrong += std::string(found->begin(), found->end()) != content(key);
          store(*cache, key);
          const std::string name = std::to_string(key % 10);
          if (auto chosen = choices.find(name)) wrong += *chosen != "choice " + name;
          choices.put(name, "choice " + name);
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(cache->warnings().empty());
  }
  EXPECT_TRUE(problems(folder.path()).empty());
  EXPECT_LE(bytes(folder.path()), kLimit);
}

} // namespace
} // namespace tessera::cache_test
