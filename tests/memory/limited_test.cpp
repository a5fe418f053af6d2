// A process whose address space is limited (ulimit -v) and a host operator that needs more: an error through the
// command and through the API, and what needs less runs afterwards.
#include "tests/api/harness.h"
#include "tests/base/share.h"
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>

namespace tessera {
namespace {

using onnx_test::Maker;

constexpr int64_t kMany = 40'000'000; // elements; their places are 320 MB

Maker nonzero() {
  Maker m;
  m.input("x", {"n"}, onnx_test::proto::TensorProto::UINT8).output("y");
  m.add("Abs", {"x"}, {"a"}).add("NonZero", {"a"}, {"y"});
  return m;
}

Tensor ones(int64_t count) {
  Tensor t = Tensor::create(DType::U8, {count}).value();
  std::fill_n(t.mutable_data(), count, std::byte{1});
  return t;
}

// Limits the memory of this process to so much more than it has mapped.
void limit_memory(int64_t more_bytes) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &limit), 0);
  limit.rlim_cur = more_bytes < 0 ? limit.rlim_max : static_cast<rlim_t>(pages * ::getpagesize() + more_bytes);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
}

[[noreturn]] void run_limited() {
  auto session = api_test::open(nonzero());
  auto small = ones(10), large = ones(kMany);
  bool good = session && session->run({{"x", small}}).ok();
  limit_memory(int64_t{100} << 20);
  auto failed = session->run({{"x", large}});
  const std::string text = failed.ok() ? "no error" : failed.error().str();
  std::fprintf(stderr, "%s", text.c_str());
  good = good && !failed.ok() && failed.error().code == ErrorCode::OutOfMemory;
  good = good && session->run({{"x", small}}).ok();
  limit_memory(-1);
  auto done = session->run({{"x", large}});
  good = good && done.ok() && (*done)[0].dims() == Dims{1, kMany} && (*done)[0].get_i64(kMany - 1) == kMany - 1;
  std::exit(good && !testing::Test::HasFailure() ? 0 : 1);
}

TEST(LimitedMemoryDeathTest, Api) {
  testing::FLAGS_gtest_death_test_style = "threadsafe"; // in a process of its own
  EXPECT_EXIT(run_limited(), testing::ExitedWithCode(0),
              "TES-4001 out-of-memory: cannot allocate [0-9]+ bytes for intermediate results");
}

// `tessera run` under a limit of the shell: its exit code and what it said.
std::pair<int, std::string> run_command(const std::string& limit, const std::string& model, int64_t count) {
  const std::string errors = api_test::folder().path() + "/errors.txt";
  const std::string line = limit + "TESSERA_CACHE_DIR='" + api_test::folder().path() +
                           "/cache' timeout 60 '" TESSERA_BINARY_DIR "/bin/tessera' run '" + model +
                           "' --device cpu --threads 2 --shape n=" + std::to_string(count) + " >/dev/null 2>'" +
                           errors + "'";
  const int status = std::system(line.c_str());
  std::ostringstream text;
  text << std::ifstream(errors).rdbuf();
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text.str()};
}

// A product by oneDNN, whose plan the cache folder has: no compiler needs memory before it.
TEST(LimitedMemory, CodeOfTheLibrary) {
  Maker m;
  m.input("x", {"n", 64}).weight(onnx_test::float_tensor("w", {64, 64}, std::vector<float>(64 * 64, 0.125F)));
  m.add("MatMul", {"x", "w"}, {"y"}).output("y");
  const std::string model = api_test::write(m);
  ASSERT_EQ(run_command("", model, 100).first, 0);
  int failed = 0;
  auto limited_to = [](int64_t megabytes) { return "ulimit -v " + std::to_string(megabytes * 1024) + "; "; };
  test::Share share;
  for (int64_t megabytes = 96; megabytes <= 210; ++megabytes) {
    if (!share.takes()) continue;
    // The program itself does not begin with much less.
    if (std::system(
            (limited_to(megabytes - 6) + "'" TESSERA_BINARY_DIR "/bin/tessera' --version >/dev/null 2>&1").c_str()) !=
        0)
      continue;
    auto [code, text] = run_command(limited_to(megabytes), model, 100);
    if (code == 0) continue; // enough
    ++failed;
    EXPECT_EQ(code, 5) << megabytes << " MB: " << text;
    const std::string limit = "address space is limited to " + std::to_string(megabytes) + " MB (ulimit -v)";
    EXPECT_NE(text.find(limit), std::string::npos) << text;
  }
  EXPECT_GT(failed, 0);
}

// Root may have any number of threads.
TEST(LimitedMemory, NoThreads) {
  if (::geteuid() != 0 || std::system("command -v setpriv prlimit >/dev/null") != 0)
    GTEST_SKIP() << "needs root, setpriv and prlimit";
  const std::string model = api_test::write(nonzero());
  std::filesystem::permissions(api_test::folder().path(), std::filesystem::perms(0755));
  const std::string line =
      "cd / && HOME= timeout 60 setpriv --reuid=65534 --clear-groups prlimit --nproc=1 '" TESSERA_BINARY_DIR
      "/bin/tessera' run '" +
      model + "' --device cpu --threads 4 --shape n=100000 >/dev/null 2>&1";
  const int status = std::system(line.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 4 || code == 126 || code == 127) GTEST_SKIP() << "the user 'nobody' cannot get at the files";
  EXPECT_EQ(code, 0) << "the calling thread does the work";
}

TEST(LimitedMemory, Command) {
  const std::string model = api_test::write(nonzero());
  auto run = [&](const std::string& limit, int64_t count) { return run_command(limit, model, count); };
  EXPECT_EQ(run("", 1000).first, 0);
  // Little enough for the operator to fail, then ever less, for whatever comes before it: starting threads, compiling.
  for (int64_t megabytes : {600, 500, 400, 300, 250, 200, 150}) {
    auto [code, text] = run("ulimit -v " + std::to_string(megabytes * 1024) + "; ", kMany);
    EXPECT_EQ(code, 5) << megabytes << " MB: " << text;
    EXPECT_NE(text.find("TES-4001"), std::string::npos) << megabytes << " MB: " << text;
  }
}

} // namespace
} // namespace tessera
