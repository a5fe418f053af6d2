// Compiles with a cache: what is found again, what is damaged, folders that cannot be written.
#include "harness.h"
#include "runtime/cache/cache.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

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
      if (e.is_regular_file() && e.path().filename() != "usage") out.push_back(e.path());
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

TEST(CachedCompile, ASecondCompileTakesWhatTheFirstOneLeft) {
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

TEST(CachedCompile, SwitchedOffItTouchesNothing) {
  TemporaryFolder folder;
  EXPECT_EQ(compile_and_run(folder.path(), false).cache_misses, 1);
  EXPECT_TRUE(files(folder.path()).empty());
}

TEST(CachedCompile, DamagedEntriesAreReplacedWithAWarning) {
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

TEST(CachedCompile, AnEntryThatIsNoCodeIsCompiledAnew) {
  TemporaryFolder folder;
  compile_and_run(folder.path());
  auto entry = files(folder.path()).at(0);
  const std::string nonsense(1000, 'x'); // with a checksum that fits
  const std::string file = read(entry);
  Cache(folder.path(), true).store(EntryKind::Kernel, decode_entry(file).value().key, {}, nonsense);
  ASSERT_LT(fs::file_size(entry), 1100u);
  compile_and_run(folder.path());
  EXPECT_GT(fs::file_size(entry), 1100u) << "it is replaced";
  compile_and_run(folder.path());
}

TEST(CachedCompile, AFolderThatCannotBeWrittenIsAWarning) {
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

} // namespace
} // namespace tessera::driver_test
