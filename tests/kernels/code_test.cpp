// Machine code: in the cache by content, made anew where an entry is damaged, unloaded with its kernel.
#include "base/log.h"
#include "harness.h"
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace tessera {
namespace {
using namespace kernel_test;
namespace fs = std::filesystem;

constexpr const char* kTwice = "tile.kernel @twice(%y: ptr<f32> written) {\n  %v = load %y[0] : f32\n  %d = add(%v, "
                               "%v) : f32\n  store %y[0] = %d\n}\n";

class KernelCode : public ::testing::Test {
protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tessera_kernels_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::unique_ptr<TileKernel> cached(const std::string& text) const {
    auto options = on_host();
    options.compile.cache = true;
    options.compile.cache_dir = folder_.string();
    return make(text, std::move(options));
  }
  [[nodiscard]] std::vector<fs::path> entries() const {
    std::vector<fs::path> out;
    for (const auto& e : fs::recursive_directory_iterator(folder_))
      if (e.path().extension() == ".tsc") out.push_back(e.path());
    return out;
  }
  static void expect_twice(TileKernel& kernel) {
    float y = 21;
    ASSERT_TRUE(launch(kernel, 1, &y).ok());
    EXPECT_EQ(y, 42);
  }
  fs::path folder_;
};

TEST_F(KernelCode, LiesInTheCacheByContent) {
  EXPECT_FALSE(cached(kTwice)->info().from_cache);
  auto again = cached(kTwice);
  EXPECT_TRUE(again->info().from_cache);
  expect_twice(*again);
  std::string other = kTwice; // another name, other names of values
  other.replace(other.find("@twice"), 6, "@double");
  EXPECT_EQ(cached(other)->kernel().name, "double");
  std::string triple = kTwice;
  triple.replace(triple.find("add(%v, %v)"), 11, "mul(%v, 3.)");
  EXPECT_FALSE(cached(triple)->info().from_cache);
}

TEST_F(KernelCode, DamagedEntriesAreMadeAnew) {
  EXPECT_NE(cached(kTwice), nullptr);
  auto files = entries();
  ASSERT_EQ(files.size(), 1U);
  const auto size = fs::file_size(files[0]);
  for (const auto at : {size_t{3}, size_t{size / 2}, size_t{size - 1}}) {
    {
      std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const char old = static_cast<char>(file.get());
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(old ^ 0x40));
    }
    auto kernel = cached(kTwice);
    EXPECT_FALSE(kernel->info().from_cache) << at;
    expect_twice(*kernel);
    EXPECT_TRUE(cached(kTwice)->info().from_cache) << "and replaced";
  }
  fs::resize_file(files[0], 10);
  expect_twice(*cached(kTwice));
}

// Bytes of memory of this process.
int64_t resident() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, here = 0;
  statm >> all >> here;
  return here * ::sysconf(_SC_PAGESIZE);
}

TEST_F(KernelCode, KernelsAndLaunchesLeaveNoMemoryBehind) {
  const std::string text =
      "tile.kernel @k(%y: ptr<f32> written, %n: i64) {\n  %s = scratch %n : ptr<f32>\n  %v = const 1 : "
      "f32\n  store %s[0] = %v\n  %w = load %s[0] : f32\n  store %y[0] = %w\n}\n";
  EXPECT_NE(cached(text), nullptr);
  float y = 0;
  auto make_and_launch = [&](int kernels) {
    for (int i = 0; i < kernels; ++i) {
      auto kernel = cached(text);
      for (int l = 0; l < 10; ++l) ASSERT_TRUE(launch(*kernel, 1, &y, 1000).ok());
    }
  };
  make_and_launch(100);
  const int64_t before = resident();
  make_and_launch(1000);
  EXPECT_LT(resident() - before, int64_t{8} << 20);
}

} // namespace
} // namespace tessera
