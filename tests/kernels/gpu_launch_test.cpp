// Launches on a GPU, on the fake driver: what it is given, captures, reports, tensor maps, and what is left behind.
#include "base/file.h"
#include "harness.h"
#include "runtime/cuda/captured_calls.h"
#include "tests/cuda/fake_driver.h"
#include "tests/cuda/variable.h"

namespace tessera {
namespace {
using namespace kernel_test;
using test::FakeGpu;

constexpr const char* kAxpy = R"(
tile.kernel @axpy(%x: ptr<f32> align=4, %n: i64, %a: f32, %y: ptr<f32> written align=4, %b: i8) {
  %p = program_id 1                      : i64
  %start = mul(%p, 64)                   : i64
  %r = range 64                          : tile<[64], i64>
  %o = add(%r, %start)                   : tile<[64], i64>
  %in = lt(%o, %n)                       : tile<[64], bool>
  %v = load %x[%o] mask=%in              : tile<[64], f32>
  %w = load %y[%o] mask=%in              : tile<[64], f32>
  %s = mul(%v, %a)                       : tile<[64], f32>
  %t = add(%w, %s)                       : tile<[64], f32>
  store %y[%o] = %t mask=%in
}
)";
constexpr const char* kChecked = R"(
tile.kernel @checked(%x: ptr<i64> align=8, %n: i64) {
  %p = program_id 0             : i64
  %i = load %x[%p]              : i64
  %bad = ge(%i, %n)             : bool
  report_index %bad, %i, %p site=2
}
)";

class KernelOnGpu : public ::testing::Test {
protected:
  KernelOnGpu() {
    gpu.kernel("axpy", 6, [this](const FakeGpu::Launch& l) {
      const auto n = static_cast<int64_t>(l.args[1]);
      const float a = std::bit_cast<float>(static_cast<uint32_t>(l.args[2]));
      const auto* x = gpu.at<float>(l.args[0], n);
      auto* y = gpu.at<float>(l.args[3], n);
      for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
      return CUDA_SUCCESS;
    });
    gpu.kernel("checked", 3, [this](const FakeGpu::Launch& l) {
      const auto n = static_cast<int64_t>(l.args[1]);
      const auto* x = gpu.at<int64_t>(l.args[0], l.grid);
      for (int64_t i = 0; i < l.grid; ++i)
        if (x[i] >= n) reinterpret_cast<IndexReport*>(l.args[2])->add(2, i, x[i]);
      return CUDA_SUCCESS;
    });
    context = gpu.context();
  }
  [[nodiscard]] TileKernelOptions options(const char* arch = "sm_90") const {
    TileKernelOptions o = on_host();
    o.compile.device = "cuda";
    o.compile.arch = arch;
    o.gpu_context = context;
    return o;
  }
  template <class... Values>
  static Status launch_on(TileKernel& kernel, void* stream, const Grid& grid, const Values&... values) {
    const std::array<KernelArgument, sizeof...(Values)> arguments{KernelArgument(values)...};
    return kernel.launch(grid, arguments, stream);
  }
  float* floats(size_t count, float value) {
    auto* at = reinterpret_cast<float*>(gpu.allocate(count * sizeof(float)));
    std::fill_n(at, count, value);
    return at;
  }

  static inline void* const kStream = reinterpret_cast<void*>(uintptr_t{0x70});
  static inline void* const kOther = reinterpret_cast<void*>(uintptr_t{0x80});
  const test::Variable no_assembler{"TESSERA_ASSEMBLER", "none"};
  FakeGpu gpu;
  std::shared_ptr<cuda::Context> context;
};

TEST_F(KernelOnGpu, ArgumentsComeInTheOrderOfTheParameters) {
  auto kernel = make(kAxpy, options());
  EXPECT_EQ(kernel->info().device, "sm_90");
  EXPECT_EQ(kernel->info().threads, 128);
  EXPECT_EQ(kernel->info().registers, -1) << "there is no assembler";
  auto *x = floats(100, 3), *y = floats(100, 1);
  ASSERT_TRUE(launch_on(*kernel, kStream, {1, 2, 3}, x, 100, 0.5, y, -1).ok());
  EXPECT_EQ(y[0], 1) << "nothing waits for the stream";
  gpu.run_all();
  EXPECT_EQ(y[99], 2.5F);
  const FakeGpu::Launch& l = gpu.launches.at(0);
  EXPECT_EQ((std::array{l.grid, l.grid_y, l.grid_z, l.threads}), (std::array{1U, 2U, 3U, 128U}));
  EXPECT_EQ(static_cast<int8_t>(l.args[4]), -1);
  EXPECT_EQ(l.args[5], 0U) << "the kernel reports nothing";
  EXPECT_FALSE(l.cooperative);
}

TEST_F(KernelOnGpu, WhatIsWrongIsNotLaunched) {
  auto kernel = make(kAxpy, options());
  auto* x = floats(100, 3);
  EXPECT_NE(message(launch_on(*kernel, kStream, 1, reinterpret_cast<char*>(x) + 2, 1, 1, x, 0)).find("a multiple of 4"),
            std::string::npos);
  EXPECT_NE(message(launch_on(*kernel, kStream, {1, 65536}, x, 1, 1, x, 0)).find("expected 0 to 65535"),
            std::string::npos);
  EXPECT_TRUE(launch_on(*kernel, kStream, {1, 0}, x, 1, 1, x, 0).ok());
  gpu.run_all();
  EXPECT_TRUE(gpu.launches.empty());
  gpu.fail("cuLaunchKernel", 0, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  const auto failed = launch_on(*kernel, kStream, 1, x, 1, 1, x, 0);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::DeviceError);
  EXPECT_TRUE(launch_on(*kernel, kStream, 1, x, 1, 1, x, 0).ok());
  auto other = options("sm_12");
  EXPECT_FALSE(TileKernel::create(kAxpy, other).ok());
}

TEST_F(KernelOnGpu, BadIndicesAreErrorsOfALaterLaunch) {
  auto kernel = make(kChecked, options());
  auto* x = reinterpret_cast<int64_t*>(gpu.allocate(3 * sizeof(int64_t)));
  x[0] = 1, x[1] = 9, x[2] = 8;
  ASSERT_TRUE(launch_on(*kernel, kStream, 3, x, 5).ok());
  ASSERT_TRUE(launch_on(*kernel, kStream, 1, x, 5).ok()) << "nothing has run yet";
  gpu.run_all();
  const auto status = launch_on(*kernel, kStream, 1, x, 5);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "index 9 at element 1 is out of range: check 2 of kernel 'checked'");
  EXPECT_TRUE(launch_on(*kernel, kStream, 1, x, 5).ok()) << "it is reported once";
}

TEST_F(KernelOnGpu, LaunchesAreCaptured) {
  auto *x = floats(10, 1), *y = floats(10, 0);
  auto kernel = make(kAxpy, options());
  gpu.begin_capture(kStream);
  ASSERT_TRUE(launch_on(*kernel, kStream, 1, x, 10, 2, y, 0).ok());
  auto* graph = gpu.end_capture(kStream);
  ASSERT_NE(graph, nullptr);
  gpu.run_all();
  EXPECT_EQ(y[0], 0);
  kernel = nullptr; // the graph holds the code
  EXPECT_EQ(gpu.calls["cuModuleUnload"], 0);
  for (int i = 1; i <= 3; ++i) {
    gpu.replay(graph, kOther);
    gpu.run_all();
    EXPECT_EQ(y[9], static_cast<float>(2 * i));
  }
  gpu.drop(graph);
  {
    const cuda::Context::Current current(*context);
    cuda::CapturedCalls::of(*context).value()->free_unused();
  }
  EXPECT_EQ(gpu.calls["cuModuleUnload"], 1);
}

TEST_F(KernelOnGpu, TensorMapsFollowTheArguments) {
  const std::string text = read_file(std::string(TESSERA_SOURCE_DIR) + "/examples/tile/product.tile").value();
  gpu.kernel(
      "product", 7, [](const FakeGpu::Launch&) { return CUDA_SUCCESS; }, 2);
  auto kernel = make(text, options("sm_90a"));
  const auto bytes = size_t{256} * 256 * 2;
  auto *a = reinterpret_cast<void*>(gpu.allocate(bytes)), *b = reinterpret_cast<void*>(gpu.allocate(bytes)),
       *c = reinterpret_cast<void*>(gpu.allocate(bytes));
  const auto put = [&](void* left, int m, int n, int k) {
    const auto status = launch_on(*kernel, kStream, 1, left, b, c, m, n, k);
    ASSERT_TRUE(status.ok()) << status.error().str();
    gpu.run_all();
  };
  put(a, 128, 256, 64);
  ASSERT_EQ(gpu.launches.back().maps.size(), 2U);
  const auto first = gpu.launches.back().maps;
  EXPECT_EQ(first[0].address, reinterpret_cast<uint64_t>(a));
  EXPECT_EQ(first[1].address, reinterpret_cast<uint64_t>(b));
  EXPECT_EQ((std::array{first[0].dims[0], first[0].dims[1]}), (std::array<uint64_t, 2>{64, 128}));
  EXPECT_EQ(first[0].strides[0], 128U);
  const int encoded = gpu.encoded_maps;
  put(a, 128, 256, 64);
  EXPECT_EQ(gpu.encoded_maps, encoded) << "nothing has changed";
  put(c, 64, 256, 128);
  EXPECT_EQ(gpu.launches.back().maps[0].address, reinterpret_cast<uint64_t>(c));
  EXPECT_EQ(gpu.launches.back().maps[0].dims[0], 128U);
  EXPECT_NE(message(launch_on(*kernel, kStream, 1, a, b, c, 128, int64_t{1} << 60, 64)).find("tensor map"),
            std::string::npos);
}

TEST_F(KernelOnGpu, BlocksThatWaitAreLaunchedTogether) {
  gpu.kernel("synchronise", 3, [](const FakeGpu::Launch&) { return CUDA_SUCCESS; });
  auto kernel = make("tile.kernel @synchronise(%c: ptr<i32> written, %n: i64) {\n  %p = program_id 0 : i64\n"
                     "  grid_barrier %c[0] rank=%p of=%n\n}\n",
                     options());
  auto* c = floats(16, 0);
  ASSERT_TRUE(launch_on(*kernel, kStream, 4, c, 4).ok());
  gpu.run_all();
  EXPECT_TRUE(gpu.launches.at(0).cooperative);
  EXPECT_FALSE(launch_on(*kernel, kStream, 5000, c, 5000).ok()) << "more than run at once";
}

TEST_F(KernelOnGpu, NothingIsLeftBehind) {
  auto *x = floats(10, 1), *y = floats(10, 0);
  for (int i = 0; i < 30; ++i) {
    auto kernel = make(kAxpy, options());
    for (int l = 0; l < 20; ++l) {
      auto* stream = reinterpret_cast<void*>(uintptr_t{0x1000} + 0x10 * static_cast<uintptr_t>(l));
      ASSERT_TRUE(launch_on(*kernel, stream, 1, x, 10, 1, y, 0).ok());
    }
  }
  EXPECT_EQ(y[0], 600) << "a kernel goes when its launches have ended";
  EXPECT_EQ(gpu.calls["cuModuleUnload"], 30);
  for (int i = 0; i < 5; ++i) make(kChecked, options());
  EXPECT_EQ(gpu.live_pinned(), 0U);
}

} // namespace
} // namespace tessera
