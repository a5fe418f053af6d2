// Programmatic dependent launch on an NVIDIA GPU of compute capability 9.0 or newer: results of kernels that start before
// the one before them has ended. Skipped, saying so, where there is none.
#include "base/stopwatch.h"
#include "runtime/cuda/code_object.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "tests/runtime/build_executable.h"
#include "variable.h"
#include <cstdio>

namespace tessera {
namespace {
using namespace cuda;
using test::Builder;
using test::Variable;

constexpr int64_t kApart = 4099;
constexpr const char* kVariable = "TESSERA_CUDA_DEPENDENT_LAUNCH";

// y[i] = x[(i + kApart) % n] + 1 for i in [0, n), 64 threads a block: each block reads what other blocks of the kernel
// before have written.
const char* const kTurn = R"(.version 7.8
.target sm_90
.address_size 64
.visible .entry turn(.param .u64 x, .param .u64 y, .param .u64 n, .param .u64 error)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .f32 %f<3>;
  .reg .b64 %d<12>;
  griddepcontrol.wait;
  griddepcontrol.launch_dependents;
  ld.param.u64 %d1, [x];
  ld.param.u64 %d2, [y];
  ld.param.u64 %d3, [n];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %d5, %r1, %r2;
  cvt.u64.u32 %d6, %r3;
  add.s64 %d5, %d5, %d6;
  setp.ge.s64 %p1, %d5, %d3;
  @%p1 ret;
  add.s64 %d7, %d5, 4099;
  rem.u64 %d7, %d7, %d3;
  shl.b64 %d7, %d7, 2;
  shl.b64 %d8, %d5, 2;
  add.s64 %d9, %d1, %d7;
  add.s64 %d10, %d2, %d8;
  ld.global.f32 %f1, [%d9];
  add.f32 %f2, %f1, 0f3F800000;
  st.global.f32 [%d10], %f2;
  ret;
}
)";

class DependentLaunchOnGpu : public ::testing::Test {
protected:
  void SetUp() override {
    auto opened = Context::open();
    if (!opened.ok()) GTEST_SKIP() << "needs an NVIDIA GPU: " << opened.error().message;
    context = *opened;
    if (context->properties().major < 9) GTEST_SKIP() << "needs compute capability 9.0";
  }
  // `count` kernels, with a copy behind each `copy_after`.
  std::shared_ptr<const Executable> turns(int count, int copy_after) {
    Builder b;
    b.exe->target = "cuda sm_90";
    auto s = b.symbol("s");
    auto from = b.input("x", {s});
    CodeObject o;
    o.symbol = "turn";
    o.ptx_arch = "sm_90";
    o.ptx = kTurn;
    b.exe->objects.push_back(encode(o));
    for (int k = 0; k < count; ++k) {
      const std::string number = std::to_string(k);
      if (k % copy_after == copy_after - 1) {
        auto copy = b.buffer("c" + number, {s});
        b.exe->steps.emplace_back(CopyStep{"copy " + number, from, copy, s * 8});
        from = copy;
      }
      auto to = k + 1 < count ? b.buffer("t" + number, {s}) : b.output("y", {s});
      auto launch = Builder::launch("turn", nullptr, {from}, {to}, {s}, ceildiv(s, 64));
      launch.threads = 64;
      launch.object = 0;
      launch.dependent_launch = true;
      b.exe->steps.emplace_back(launch);
      from = to;
    }
    return b.done();
  }
  static Tensor numbers(int64_t n, int from) {
    Tensor t = Tensor::create(DType::F32, {n}).value();
    for (int64_t i = 0; i < n; ++i)
      t.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>((i * 7 + from) % 10007);
    return t;
  }
  // How many elements of `y` are not what `count` kernels make of `x`.
  static int64_t wrong(std::span<const float> x, std::span<const float> y, int64_t count) {
    const auto n = static_cast<int64_t>(x.size());
    int64_t found = 0;
    for (int64_t i = 0; i < n; ++i)
      found +=
          y[static_cast<size_t>(i)] != x[static_cast<size_t>((i + kApart * count) % n)] + static_cast<float>(count);
    return found;
  }
  std::shared_ptr<Context> context;
};

TEST_F(DependentLaunchOnGpu, ResultsAreRightSinglyAndReplayed) {
  constexpr int kKernels = 60;
  for (int copy_after : {1000, 7}) {
    ExecutorOptions options;
    options.wait_for_plans = true;
    auto e = Executor::create({turns(kKernels, copy_after)}, options);
    ASSERT_TRUE(e.ok()) << e.error().str();
    for (int64_t n : {64, 5000, 100000, 3000000})
      for (int round = 0; round < 20; ++round) {
        Tensor x = numbers(n, round);
        auto r = (*e)->run({{"x", x}});
        ASSERT_TRUE(r.ok()) << r.error().str();
        ASSERT_EQ(wrong(x.as<float>(), (*r)[0].as<float>(), kKernels), 0) << n << ", round " << round;
      }
  }
}

// plan.cpp relies on this where a library call has put no kernel on the stream, or something behind it.
TEST_F(DependentLaunchOnGpu, BehindFillsAndCopiesItIsAPlainLaunchAlsoWhenCaptured) {
  constexpr int64_t n = 1000000;
  Context::Current current(*context);
  const Driver& d = context->driver();
  auto stream = Stream::create(context).value();
  CUstream s = stream->handle();
  CUmodule module = nullptr;
  CUfunction turn = nullptr;
  ASSERT_EQ(d.cuModuleLoadDataEx(&module, kTurn, 0, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(d.cuModuleGetFunction(&turn, module, "turn"), CUDA_SUCCESS);
  DeviceBlock block;
  ASSERT_TRUE(block.reserve(*context, 3 * n * 4, s, "a test").ok());
  auto a = reinterpret_cast<CUdeviceptr>(block.data()), b = a + n * 4, c = b + n * 4;
  auto launch = [&](CUdeviceptr from, CUdeviceptr to) {
    int64_t count = n, none = 0;
    void* params[] = {&from, &to, &count, &none};
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config{(n + 63) / 64, 1, 1, 64, 1, 1, 0, s, &attribute, 1};
    return d.cuLaunchKernelEx(&config, turn, params, nullptr);
  };
  // c = 5 everywhere, by way of a and b.
  auto put = [&] {
    EXPECT_EQ(launch(b, c), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemsetD8Async(a, 0, n * 4, s), CUDA_SUCCESS);
    EXPECT_EQ(launch(a, b), CUDA_SUCCESS);
    EXPECT_EQ(launch(b, a), CUDA_SUCCESS);
    EXPECT_EQ(launch(a, b), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyDtoDAsync(a, b, n * 4, s), CUDA_SUCCESS);
    EXPECT_EQ(launch(a, b), CUDA_SUCCESS);
    EXPECT_EQ(launch(b, c), CUDA_SUCCESS);
  };
  auto check = [&](const char* how) {
    std::vector<float> values(n);
    EXPECT_EQ(d.cuMemcpyDtoHAsync(values.data(), c, n * 4, s), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
    EXPECT_EQ(std::count(values.begin(), values.end(), 5.0F), n) << how;
  };
  for (int round = 0; round < 20; ++round) put();
  check("singly");
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(d.cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  put();
  ASSERT_EQ(d.cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
  ASSERT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  for (int round = 0; round < 20; ++round) EXPECT_EQ(d.cuGraphLaunch(exec, s), CUDA_SUCCESS);
  check("as a graph");
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
  block.release(*context, s);
}

// This test prints the gain; it checks nothing.
TEST_F(DependentLaunchOnGpu, TellsWhatItSaves) {
  constexpr int kKernels = 200;
  constexpr int64_t n = 20000;
  for (const char* on : {"0", "1", "0", "1"}) {
    const Variable variable(kVariable, on);
    ExecutorOptions options;
    options.wait_for_plans = true;
    auto e = Executor::create({turns(kKernels, kKernels + 1)}, options).value();
    Context::Current current(*context);
    auto stream = Stream::create(context).value();
    DeviceBlock block;
    ASSERT_TRUE(block.reserve(*context, 2 * n * 4, stream->handle(), "a test").ok());
    auto given = {DeviceTensor{DType::F32, {n}, block.data() + n * 4}};
    double least = 1;
    for (int round = 0; round < 30; ++round) {
      ASSERT_TRUE(context->driver().cuStreamSynchronize(stream->handle()) == CUDA_SUCCESS);
      const Stopwatch watch;
      ASSERT_TRUE(e->run_on_device({{"x", {DType::F32, {n}, block.data()}}}, given, stream->handle()).ok());
      ASSERT_TRUE(e->wait().ok());
      least = std::min(least, watch.seconds() / kKernels);
    }
    std::printf("[ launches ] %s=%s: %.2f us a kernel in a graph\n", kVariable, on, least * 1e6);
    block.release(*context, stream->handle());
  }
}

} // namespace
} // namespace tessera
