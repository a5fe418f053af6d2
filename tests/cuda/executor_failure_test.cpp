// The executor on the fake GPU where something fails: memory, every call of the driver, kernels.
#include "executor_harness.h"
#include "runtime/memory_account.h"
#include <cstdlib>

namespace tessera {
namespace {
using namespace test;

TEST_F(OnGpu, MemoryThatIsNotThereIsSurvived) {
  gpu.memory = 4 << 20;
  auto e = executor(chain());
  ASSERT_TRUE(e->run({{"x", ramp(1000)}}).ok());
  auto r = e->run({{"x", ramp(1 << 20)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::OutOfMemory);
  EXPECT_NE(r.error().message.find("cannot allocate 4194304 bytes of GPU memory for inputs: "), std::string::npos)
      << r.error().message;
  auto x = ramp(100000);
  r = e->run({{"x", x}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ(values((*r)[0]), expected(x));
}

TEST_F(OnGpu, EveryAllocationMayFailForGood) {
  auto exe = chain("checked", "twice");
  auto x = ramp(1000);
  int allocations = 0;
  {
    auto e = executor(exe);
    gpu.calls.clear();
    ASSERT_TRUE(e->run({{"x", x}}).ok());
    allocations = gpu.calls["cuMemAllocFromPoolAsync"];
  }
  EXPECT_EQ(allocations, 3) << "inputs, arena, outputs";
  for (int nth = 0; nth < allocations; ++nth) {
    auto e = executor(exe);
    gpu.fail("cuMemAllocFromPoolAsync", nth, CUDA_ERROR_OUT_OF_MEMORY, 2); // it is tried twice
    auto r = e->run({{"x", x}});
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::OutOfMemory);
    r = e->run({{"x", x}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    EXPECT_EQ(values((*r)[0]), expected(x));
  }
}

TEST_F(OnGpu, MemoryLimitsAreKept) {
  options.memory = std::make_shared<MemoryAccount>(1 << 20);
  auto held = [&](MemoryAccount::Where where) { return options.memory->held(where); };
  auto e = executor(chain());
  EXPECT_TRUE(e->run({{"x", ramp(1000)}}).ok());
  const int64_t of_small = held(MemoryAccount::Where::Device);
  EXPECT_GT(of_small, 0);
  auto r = e->run({{"x", ramp(1 << 20)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::OutOfMemory);
  EXPECT_NE(r.error().message.find("bytes for inputs are needed"), std::string::npos) << r.error().message;
  EXPECT_NE(r.error().message.find("the limit is 1048576"), std::string::npos) << r.error().message;
  EXPECT_TRUE(e->run({{"x", ramp(1000)}}).ok());
  EXPECT_EQ(held(MemoryAccount::Where::Device), of_small);
  e.reset();
  EXPECT_EQ(held(MemoryAccount::Where::Device), 0);
  EXPECT_EQ(held(MemoryAccount::Where::Host), 0);
}

TEST_F(OnGpu, TrimGivesBackWhatCallsLeftBehind) {
  options.memory = std::make_shared<MemoryAccount>(0);
  auto held = [&](MemoryAccount::Where where) { return options.memory->held(where); };
  auto e = executor(chain());
  const int64_t before = held(MemoryAccount::Where::Device), live = gpu.live_bytes();
  for (int64_t n : {10, 1000, 100000}) EXPECT_TRUE(e->run({{"x", ramp(n)}}).ok());
  EXPECT_GT(held(MemoryAccount::Where::Device), before);
  EXPECT_GT(held(MemoryAccount::Where::Host), 0) << "plans";
  ASSERT_TRUE(e->trim().ok());
  EXPECT_EQ(held(MemoryAccount::Where::Device), before);
  EXPECT_EQ(held(MemoryAccount::Where::Host), 0);
  EXPECT_EQ(gpu.live_bytes(), live);
  auto x = ramp(1000);
  auto r = e->run({{"x", x}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ(values((*r)[0]), expected(x));
}

TEST_F(OnGpu, PlansOfShapesStayWithinTheLimit) {
  options.memory = std::make_shared<MemoryAccount>(64 << 10);
  auto e = executor(chain());
  for (int64_t n = 1; n < 1000; ++n) EXPECT_TRUE(e->run({{"x", ramp(n)}}).ok()) << n;
  EXPECT_LE(options.memory->peak(), 64 << 10);
}

// Whatever call of the driver fails, and however late: an error that names it, and the next call works.
TEST_F(OnGpu, EveryCallMayFail) {
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), u = b.buffer("u", {s}), y = b.output("y", {s}),
       w = b.constant("w", ramp(10)), z = b.output("z", {10});
  kernel(b, "checked", x, t, s);
  HostStep h;
  h.name = h.op = "same";
  h.inputs = {t};
  h.outputs = {u};
  h.run = [](const std::vector<Tensor>& in, const std::unordered_map<uint64_t, int64_t>&) {
    return Result<std::vector<Tensor>>(in);
  };
  b.exe->steps.emplace_back(h);
  kernel(b, "twice", u, y, s);
  b.exe->steps.emplace_back(CopyStep{"w to z", w, z});
  auto exe = b.done();
  auto in = ramp(200);
  std::map<std::string, int> counts;
  {
    auto e = executor(exe);
    gpu.calls.clear();
    ASSERT_TRUE(e->run({{"x", in}}).ok());
    counts = gpu.calls;
  }
  int failures = 0;
  for (const auto& [function, count] : counts)
    for (int nth = 0; nth < count; ++nth)
      for (auto result : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY}) {
        auto e = executor(exe);
        gpu.fail(function, nth, result);
        auto r = e->run({{"x", in}});
        // Freeing is no reason to fail; memory that is not there is requested a second time.
        bool harmless = function.starts_with("cuMemFree") || function == "cuMemGetInfo" ||
                        (function == "cuMemAllocFromPoolAsync" && result == CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT_EQ(r.ok(), harmless) << function << " " << nth;
        if (!r.ok()) {
          ++failures;
          EXPECT_EQ(r.error().code,
                    result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::OutOfMemory : ErrorCode::DeviceError);
        }
        r = e->run({{"x", in}});
        ASSERT_TRUE(r.ok()) << "after " << function << " " << nth << ": " << r.error().str();
        EXPECT_EQ(values((*r)[0]), expected(in));
        EXPECT_EQ(values((*r)[1]), values(ramp(10)));
      }
  EXPECT_GT(failures, 20);
}

TEST_F(OnGpu, ViolationsAreTheInputsFaultAndNameTheKernel) {
  auto e = executor(chain("twice", "checked"));
  for (int round = 0; round < 2; ++round) {
    auto r = e->run({{"x", ramp(4, -100)}});
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::BadInput);
    EXPECT_TRUE(r.error().message.ends_with(" of 'x' is out of range in checked")) << r.error().message;
    EXPECT_EQ(r.error().notes, std::vector<std::string>{"found by kernel 'the kernel checked'"});
    EXPECT_TRUE(e->run({{"x", ramp(4)}}).ok()) << "it is not reported again";
  }
}

TEST_F(OnGpu, ARunThatFailsForAnotherReasonLeavesNoViolation) {
  auto e = executor(chain("checked", "twice"));
  ASSERT_TRUE(e->run({{"x", ramp(4)}}).ok());
  gpu.fail("cuLaunchKernel", 1, CUDA_ERROR_INVALID_VALUE);
  auto r = e->run({{"x", ramp(4, -2)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message, "launching kernel 'the kernel twice': cuLaunchKernel failed with "
                               "CUDA_ERROR_INVALID_VALUE (words of the fake)");
  EXPECT_TRUE(e->run({{"x", ramp(4)}}).ok());
}

TEST_F(OnGpu, ABrokenKernelIsFoundLateOrNamedAndTheDeviceIsLost) {
  for (bool synchronize : {false, true}) {
    SCOPED_TRACE(synchronize);
    options.synchronize_launches = synchronize;
    options.gpu_context = nullptr;
    auto e = executor(chain("twice", "broken"));
    auto r = e->run({{"x", ramp(4)}});
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::DeviceError);
    auto text = r.error().str();
    EXPECT_NE(text.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << text;
    if (synchronize)
      EXPECT_NE(text.find("step 'the kernel broken': cuStreamSynchronize failed"), std::string::npos) << text;
    else
      EXPECT_NE(text.find("one of the 2 steps from 'the kernel twice' to 'the kernel broken' failed"),
                std::string::npos)
          << text;
    EXPECT_NE(text.find("start the process again"), std::string::npos);
    r = e->run({{"x", ramp(4)}});
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.error().message.find("the GPU is lost to this process by an earlier error"), std::string::npos);
    e = nullptr;
    gpu.repair();
  }
}

TEST_F(OnGpu, TheEnvironmentAsksToWaitForEachStep) {
  ::setenv("TESSERA_CUDA_SYNC", "1", 1);
  auto e = executor(chain());
  ::setenv("TESSERA_CUDA_SYNC", "0", 1);
  auto f = executor(chain());
  ::unsetenv("TESSERA_CUDA_SYNC");
  for (auto* one : {e.get(), f.get()}) ASSERT_TRUE(one->run({{"x", ramp(5)}}).ok());
  gpu.calls.clear();
  ASSERT_TRUE(e->run({{"x", ramp(5)}}).ok());
  EXPECT_EQ(gpu.calls["cuStreamSynchronize"], 3);
  gpu.calls.clear();
  ASSERT_TRUE(f->run({{"x", ramp(5)}}).ok());
  EXPECT_EQ(gpu.calls["cuStreamSynchronize"], 1);
}

} // namespace
} // namespace tessera
