// The object cache: what is found again, what is damaged, folders that cannot be written, several processes.
#include "codegen/driver/object_cache.h"
#include "harness.h"
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::driver_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kText = R"(
graph @main(%x: f32[n]) -> (%y: f32[n]) where n in [0, ?] {
  %a = exp(%x) : f32[n]
  %y = sqrt(%a) : f32[n]
}
)";

std::vector<fs::path> files(const std::string& folder) {
  std::vector<fs::path> out;
  if (fs::exists(folder))
    for (const auto& e : fs::recursive_directory_iterator(folder))
      if (e.is_regular_file()) out.push_back(e.path());
  std::sort(out.begin(), out.end());
  return out;
}
std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Compiles kText with this cache and checks that it runs.
CompileReport compile_and_run(const std::string& folder, bool cache = true) {
  auto o = options(folder);
  o.cache = cache;
  auto c = compile_it(parse(kText), o);
  expect_right(parse(kText), c, {{"x", random(DType::F32, {100})}}, 1e-5);
  return c.report;
}

TEST(ObjectCache, ASecondCompileTakesWhatTheFirstOneLeft) {
  TemporaryFolder folder;
  auto first = compile_and_run(folder.path()), second = compile_and_run(folder.path());
  EXPECT_EQ(first.cache_misses, 1);
  EXPECT_EQ(first.cache_hits, 0);
  EXPECT_EQ(second.cache_misses, 0);
  EXPECT_EQ(second.cache_hits, 1);
  EXPECT_TRUE(second.kernels.at(0).from_cache);
  EXPECT_TRUE(second.cache_warnings.empty());
  EXPECT_EQ(files(folder.path()).size(), 1u) << "no temporary files stay";
}

TEST(ObjectCache, SwitchedOffItTouchesNothing) {
  TemporaryFolder folder;
  EXPECT_EQ(compile_and_run(folder.path(), false).cache_misses, 1);
  EXPECT_TRUE(files(folder.path()).empty());
}

TEST(ObjectCache, DamagedEntriesAreReplacedWithAWarning) {
  TemporaryFolder folder;
  compile_and_run(folder.path());
  auto entry = files(folder.path()).at(0);
  const std::string good = read(entry);
  auto flipped = [&](size_t at) {
    std::string s = good;
    s[at] = static_cast<char>(s[at] ^ 0x10);
    return s;
  };
  for (const std::string& bad :
       {std::string(), good.substr(0, 7), good.substr(0, 40), good.substr(0, good.size() - 1), good + "x", flipped(0),
        flipped(9), flipped(20), flipped(good.size() / 2), flipped(good.size() - 1), std::string(good.size(), '\0')}) {
    write(entry, bad);
    auto report = compile_and_run(folder.path());
    EXPECT_EQ(report.cache_misses, 1);
    ASSERT_EQ(report.cache_warnings.size(), 1u);
    EXPECT_NE(report.cache_warnings[0].find(entry.string() + " is damaged"), std::string::npos)
        << report.cache_warnings[0];
    EXPECT_EQ(read(entry).size(), good.size()) << "it is replaced";
    EXPECT_EQ(compile_and_run(folder.path()).cache_hits, 1);
  }
}

TEST(ObjectCache, AnEntryThatIsNoCodeIsCompiledAnew) {
  TemporaryFolder folder;
  compile_and_run(folder.path());
  auto entry = files(folder.path()).at(0);
  std::vector<char> nonsense(1000, 'x'); // with a checksum that fits
  auto key = entry.stem().string();
  Hash128 hash{std::stoull(key.substr(16), nullptr, 16), std::stoull(key.substr(0, 16), nullptr, 16)};
  if (hash.hex() != key) std::swap(hash.lo, hash.hi);
  ASSERT_EQ(hash.hex(), key);
  ObjectCache(folder.path(), true).store(hash, nonsense);
  ASSERT_LT(fs::file_size(entry), 1100u);
  compile_and_run(folder.path());
  EXPECT_GT(fs::file_size(entry), 1100u) << "it is replaced";
  compile_and_run(folder.path());
}

TEST(ObjectCache, AFolderThatCannotBeWrittenIsAWarning) {
  TemporaryFolder folder;
  auto file = folder.write("file", "x"); // root may write anywhere but below a file
  const std::string proc = "/proc/tessera";
  for (const auto& [where, named] : {std::pair(file, file), std::pair(file + "/below", file), std::pair(proc, proc)}) {
    auto report = compile_and_run(where);
    EXPECT_EQ(report.cache_misses, 1);
    ASSERT_EQ(report.cache_warnings.size(), 1u) << where;
    EXPECT_NE(report.cache_warnings[0].find("the cache does without " + named + ": "), std::string::npos)
        << report.cache_warnings[0];
  }
}

// In a process of its own, because what it needs cannot be undone. The cache alone: no threads after fork. The child's
// exit status is the number of the check that failed.
template <class Body>
int in_child(const Body& body) {
  pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = -1;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ObjectCache, AWriteThatFailsHalfwayLeavesNothing) {
  TemporaryFolder folder;
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              rlimit limit{1000, 1000};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              ObjectCache cache(folder.path(), true);
              cache.store({1, 2}, std::vector<char>(5000, 'a'));
              if (cache.warnings().size() != 1 || cache.warnings()[0].find("File too large") == std::string::npos)
                return 2;
              if (cache.find({1, 2})) return 3;
              cache.store({3, 4}, std::vector<char>(100, 'b'));
              auto small = cache.find({3, 4});
              return small && small->size() == 100 ? 0 : 4;
            }),
            0);
  EXPECT_EQ(files(folder.path()).size(), 1u) << "the temporary file is gone";
}

TEST(ObjectCache, AFullDiskIsAWarning) {
  TemporaryFolder folder;
  auto disk = folder.path() + "/disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=8k,mode=700") != 0)
    GTEST_SKIP() << "this process may not mount a small disk";
  {
    ObjectCache cache(disk, true);
    cache.store({1, 2}, std::vector<char>(1 << 20, 'a'));
    ASSERT_EQ(cache.warnings().size(), 1u);
    EXPECT_NE(cache.warnings()[0].find("No space left on device"), std::string::npos) << cache.warnings()[0];
    EXPECT_FALSE(cache.find({1, 2}));
    EXPECT_TRUE(files(disk).empty());
    write(disk + "/filler", std::string(1 << 20, 'x'));
    EXPECT_EQ(compile_and_run(disk).cache_warnings.size(), 1u);
  }
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

TEST(ObjectCache, SeveralProcessesWriteAndReadTheSameEntries) {
  TemporaryFolder folder;
  constexpr uint64_t kKeys = 40, kRounds = 20;
  auto content = [](uint64_t key) { return std::vector<char>(3000 + key * 17, static_cast<char>(key)); };
  std::vector<pid_t> children;
  for (int process = 0; process < 3; ++process) {
    pid_t pid = ::fork();
    if (pid == 0) {
      ObjectCache cache(folder.path(), true);
      for (uint64_t round = 0; round < kRounds; ++round)
        for (uint64_t key = 0; key < kKeys; ++key) {
          // Each entry is there whole or not at all, whoever writes it at the moment.
          if (auto found = cache.find({key, 7}); found && *found != content(key)) ::_exit(1);
          cache.store({key, 7}, content(key));
          if (auto found = cache.find({key, 7}); !found || *found != content(key)) ::_exit(2);
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
}

TEST(ObjectCache, TheFolderComesFromTheEnvironment) {
  auto with = [](const char* cache, const char* xdg, const char* home) {
    auto set = [](const char* name, const char* value) { value ? ::setenv(name, value, 1) : ::unsetenv(name); };
    auto old = [](const char* name) {
      const char* v = std::getenv(name);
      return v ? std::optional<std::string>(v) : std::nullopt;
    };
    auto a = old("TESSERA_CACHE_DIR"), b = old("XDG_CACHE_HOME"), c = old("HOME");
    set("TESSERA_CACHE_DIR", cache);
    set("XDG_CACHE_HOME", xdg);
    set("HOME", home);
    std::string directory = ObjectCache("", true).directory();
    set("TESSERA_CACHE_DIR", a ? a->c_str() : nullptr);
    set("XDG_CACHE_HOME", b ? b->c_str() : nullptr);
    set("HOME", c ? c->c_str() : nullptr);
    return directory;
  };
  EXPECT_EQ(with("/c", "/x", "/h"), "/c");
  EXPECT_EQ(with("", "/x", "/h"), "/x/tessera") << "an empty variable is none";
  EXPECT_EQ(with(nullptr, "/x", "/h"), "/x/tessera");
  EXPECT_EQ(with(nullptr, nullptr, "/h"), "/h/.cache/tessera");
  EXPECT_EQ(with(nullptr, nullptr, nullptr), "") << "nowhere: it is off";
  EXPECT_EQ(ObjectCache("/given", true).directory(), "/given");
}

} // namespace
} // namespace tessera::driver_test
