// tessera cache: what it shows, checks, removes and copies.
#include "harness.h"
#include "tests/cache/age.h"

namespace tessera::command_test {
namespace {

class CacheCommand : public Command {
protected:
  // Compiles a model; the report.
  Json compile(const std::string& name, const std::string& options = "") {
    expect(0, "compile " + model(name) + " --device cpu -o out.tsr --json compile.json " + options);
    return json("compile.json");
  }
  void fill() {
    for (const char* name : kModels) compile(name);
    ASSERT_GE(entries().size(), 3U);
  }
  static constexpr const char* kModels[] = {"mlp", "norm", "conv", "slices"};
  [[nodiscard]] std::vector<fs::path> entries(const std::string& cache = "cache") const {
    std::vector<fs::path> out;
    if (fs::exists(path(cache) + "/objects"))
      for (const auto& e : fs::recursive_directory_iterator(path(cache) + "/objects"))
        if (e.is_regular_file()) out.push_back(e.path());
    std::sort(out.begin(), out.end());
    return out;
  }
  Json report(int code, const std::string& arguments) {
    const Outcome o = expect(code, "cache " + arguments);
    return Json::parse(o.out, nullptr, false);
  }
};

TEST_F(CacheCommand, ListsWhatCompilesLeft) {
  EXPECT_EQ(report(0, "list --format json")["entries"], 0);
  fill();
  const Json j = report(0, "list --format json");
  EXPECT_EQ(j["entries"], entries().size());
  EXPECT_EQ(j["damaged"], 0);
  int64_t bytes = 0;
  for (const auto& e : entries()) bytes += static_cast<int64_t>(fs::file_size(e));
  EXPECT_EQ(j["bytes"], bytes);
  std::set<std::string> kinds;
  for (const Json& k : j["kinds"]) kinds.insert(k["kind"]);
  kinds.erase("digest"); // of models that were not just written
  EXPECT_EQ(kinds, (std::set<std::string>{"kernel", "plan"}));
  for (const Json& k : j["kinds"]) {
    EXPECT_EQ(k["version"].get<std::string>().find("llvm-") != std::string::npos, k["kind"] == "kernel");
    EXPECT_EQ(k["device"].get<std::string>().empty(), k["kind"] == "digest");
  }
  expect(0, "cache list", {"kernel", "llvm-", "limit 2.1 GB", std::to_string(entries().size()) + " entries"});
}

TEST_F(CacheCommand, VerifyNamesDamageAndRepairRemovesIt) {
  fill();
  const size_t count = entries().size();
  EXPECT_EQ(report(0, "verify --format json")["entries"], count);
  const fs::path bad = entries()[0];
  fs::resize_file(bad, fs::file_size(bad) - 1);
  expect(1, "cache verify", {fs::path(bad).filename().string(), "is damaged", "--repair removes damaged entries"});
  const Json j = report(1, "verify --format json");
  ASSERT_EQ(j["damaged"].size(), 1U);
  EXPECT_EQ(fs::path(j["damaged"][0]["path"].get<std::string>()).filename(), bad.filename());
  report(0, "verify --repair --format json");
  EXPECT_FALSE(fs::exists(bad));
  EXPECT_EQ(report(0, "verify --format json")["entries"], count - 1);
  // A file of records that nobody can read is a finding, too; it is people's text and stays.
  std::ofstream(path("cache/tuned.json")) << "{";
  expect(1, "cache verify --repair", {"tuned.json", "no JSON object"});
  EXPECT_TRUE(fs::exists(path("cache/tuned.json")));
}

TEST_F(CacheCommand, PrunesByRules) {
  fill();
  const auto all = entries();
  std::ofstream(all[0].parent_path() / (std::string(32, 'a') + ".o")) << "of a format before";
  EXPECT_EQ(report(0, "prune --other-versions --format json")["removed"], 1);
  EXPECT_EQ(entries(), all);
  EXPECT_EQ(report(0, "prune --older-than 1d --format json")["removed"], 0);
  set_age(all[0], 50 * 3600);
  EXPECT_EQ(report(0, "prune --older-than 2d --format json")["removed"], 1);
  EXPECT_FALSE(fs::exists(all[0]));
  const Json j = report(0, "prune --limit 3k --format json");
  EXPECT_LE(j["bytes"].get<int64_t>(), 3000);
  EXPECT_EQ(report(0, "clear --format json")["entries"], 0);
  EXPECT_TRUE(entries().empty());
}

TEST_F(CacheCommand, AnArchiveFillsAnotherFolderSoThatNothingIsCompiled) {
  fill();
  const auto names = entries();
  expect(0, "cache export warm.tsa", {"warm.tsa", std::to_string(names.size()) + " entries"});
  expect(0, "cache import warm.tsa --cache-dir other", {"machine code", std::to_string(names.size()) + " entries"});
  ASSERT_EQ(entries("other").size(), names.size());
  expect(0, "cache verify --cache-dir other");
  for (const char* name : kModels) {
    const Json j = compile(name, "--cache-dir other");
    EXPECT_EQ(j["cache_misses"], 0) << name;
    EXPECT_GT(j["cache_hits"], 0) << name;
  }
  const Json again = report(0, "import warm.tsa --cache-dir other --format json");
  EXPECT_EQ(again["added"], 0);
  EXPECT_EQ(again["present"], names.size());
}

TEST_F(CacheCommand, TheFolderStaysWithinItsLimitWhileModelsAreCompiled) {
  fill();
  int64_t bytes = 0;
  for (const auto& e : entries()) bytes += static_cast<int64_t>(fs::file_size(e));
  fs::remove_all(path("cache"));
  const std::string limit = std::to_string(bytes / 2);
  for (const char* name : kModels) {
    const std::string line = "TESSERA_CACHE_LIMIT=" + limit + " TESSERA_CACHE_DIR='" + path("cache") +
                             "' '" TESSERA_BINARY_DIR "/bin/tessera' compile '" + model(name) + "' --device cpu -o '" +
                             path("out.tsr") + "' >/dev/null 2>&1";
    ASSERT_EQ(std::system(line.c_str()), 0) << name;
    int64_t now = 0;
    for (const auto& e : entries()) now += static_cast<int64_t>(fs::file_size(e));
    EXPECT_LE(now, bytes / 2) << name;
  }
  EXPECT_FALSE(entries().empty());
}

TEST_F(CacheCommand, WrongUseSaysWhatIsRight) {
  expect(2, "cache", {"a subcommand is required"});
  expect(2, "cache lisst", {"no subcommand 'lisst' of 'cache'", "did you mean 'list'?"});
  expect(2, "cache list --formt json", {"no option '--formt' of 'cache list'", "did you mean '--format'?"});
  expect(2, "cache prune", {"--limit", "--older-than"});
  expect(2, "cache prune --limit much", {"'much' is no size"});
  expect(2, "cache prune --older-than 30x", {"'30x' is no age"});
  std::ofstream(path("file")) << "something else";
  expect(4, "cache import file", {"is no archive of a cache"});
  expect(4, "cache import nothing", {"nothing"});
  expect(0, "cache --help", {"verify", "export"});
  // A folder that others may write is not listed, verified or filled.
  fs::create_directory(path("open"));
  fs::permissions(path("open"), fs::perms::all);
  for (const char* what : {"list", "verify", "clear", "prune --limit 1"})
    expect(4, "cache " + std::string(what) + " --cache-dir open", {"mode 0777", "is not trusted"});
}

} // namespace
} // namespace tessera::command_test
