// Runs that repeat are put on the stream as one graph: when, with which addresses, and what happens where that fails.
#include "executor_harness.h"
#include "runtime/cuda/replay.h"

namespace tessera {
namespace {
using namespace test;
using cuda::Recorder;

constexpr int kSteps = 8;
constexpr float kBreaks = 1e9f; // an element that makes the kernel fail

class Repeated : public OnGpu {
protected:
  Repeated() {
    // y[i] = x[i] + 1 for i in [0, n); a violation where an element is negative.
    gpu.kernel("more", 4, [this](const FakeGpu::Launch& l) {
      auto n = static_cast<int64_t>(l.args[2]);
      const auto* x = gpu.at<float>(l.args[0], n);
      auto* y = gpu.at<float>(l.args[1], n);
      for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] + 1;
        if (x[i] >= kBreaks) return CUDA_ERROR_ILLEGAL_ADDRESS;
        if (x[i] < 0) gpu.at<IndexReport>(l.args[3], 1)->add(0, i, static_cast<int64_t>(x[i]));
      }
      return CUDA_SUCCESS;
    });
    options.pool = ThreadPool::create(1);
    options.poison = false;
    options.wait_for_plans = true; // the second call records, and what is counted does not depend on time
  }
  // y = x + kSteps, by as many kernels.
  std::unique_ptr<Executor> executor(bool with_host_step = false, bool with_copy = false) {
    auto b = builder();
    auto s = b.symbol("s");
    auto from = b.input("x", {s});
    for (int k = 0; k < kSteps; ++k) {
      const bool last = k + 1 == kSteps;
      auto to = last && !with_copy ? b.output("y", {s}) : b.buffer("t" + std::to_string(k), {s});
      if (with_host_step && k == 3) {
        HostStep h;
        h.name = h.op = "same";
        auto copy = b.buffer("same", {s});
        h.inputs = {from};
        h.outputs = {copy};
        h.run = [](const std::vector<Tensor>& in, const std::unordered_map<uint64_t, int64_t>&) {
          return Result<std::vector<Tensor>>(in);
        };
        b.exe->steps.emplace_back(h);
        from = copy;
      }
      auto kernel = Builder::launch("more", nullptr, {from}, {to}, {s}, ceildiv(s, 64));
      kernel.name = "kernel " + std::to_string(k);
      kernel.threads = 64;
      kernel.object = 0;
      kernel.report_sites = {{"", "x", "more"}};
      b.exe->steps.emplace_back(kernel);
      from = to;
    }
    if (with_copy) b.exe->steps.emplace_back(CopyStep{"copied", from, b.output("y", {s}), s * 4});
    b.exe->objects.push_back(object("more"));
    return OnGpu::executor(b.done());
  }
  // A run, its results, and how often the driver's functions were called.
  std::map<std::string, int> run(Executor& e, int64_t n, float from = 0, RunStats* stats = nullptr) {
    {
      const auto paused = gpu.pause();
      gpu.calls.clear();
    }
    auto r = e.run({{"x", ramp(n, from)}}, stats);
    EXPECT_TRUE(r.ok()) << r.error().str();
    for (int64_t i = 0; r.ok() && i < n; ++i) {
      auto want = from + static_cast<float>(i + kSteps);
      EXPECT_EQ((*r)[0].as<float>()[static_cast<size_t>(i)], want);
    }
    const auto paused = gpu.pause();
    return gpu.calls;
  }
};

TEST_F(Repeated, TheSecondRunIsCapturedAndTheThirdIsOneCall) {
  auto e = executor();
  auto calls = run(*e, 100);
  EXPECT_EQ(calls["cuLaunchKernel"], kSteps);
  EXPECT_EQ(calls["cuStreamBeginCapture"] + calls["cuGraphLaunch"], 0);
  calls = run(*e, 100, 5);
  EXPECT_EQ(calls["cuStreamBeginCapture"], 1);
  EXPECT_EQ(calls["cuGraphLaunch"], 1);
  std::map<std::string, int> want{
      {"cuMemcpyHtoDAsync", 1}, {"cuGraphLaunch", 1}, {"cuMemcpyDtoHAsync", 1}, {"cuStreamSynchronize", 1}};
  for (int round = 0; round < 3; ++round) EXPECT_EQ(run(*e, 100, static_cast<float>(7 * round)), want);
  EXPECT_EQ(run(*e, 60)["cuLaunchKernel"], kSteps) << "another shape has a plan of its own";
  EXPECT_EQ(run(*e, 100), want);
  EXPECT_EQ(run(*e, 100000)["cuLaunchKernel"], kSteps);
  EXPECT_EQ(run(*e, 100)["cuLaunchKernel"], kSteps) << "the arena has grown and lies elsewhere";
  run(*e, 100);
  EXPECT_EQ(run(*e, 100), want);
  EXPECT_EQ(gpu.live_graphs(), 2u);
  e.reset();
  EXPECT_EQ(gpu.live_graphs(), 0u);
}

TEST_F(Repeated, MemoryOfTheCallerIsPartOfIt) {
  auto e = executor();
  const int64_t n = 64;
  std::vector<uint64_t> in, out;
  for (int i = 0; i < 6; ++i) {
    in.push_back(gpu.allocate(256));
    out.push_back(gpu.allocate(256));
  }
  auto* stream = reinterpret_cast<void*>(uintptr_t{0x70});
  float from = 0;
  auto call = [&](size_t i) {
    auto x = ramp(n, from += 3);
    std::memcpy(reinterpret_cast<void*>(in[i]), x.data(), 256);
    std::memset(reinterpret_cast<void*>(out[i]), 0, 256);
    gpu.calls.clear();
    auto given = {DeviceTensor{DType::F32, {n}, reinterpret_cast<void*>(out[i])}};
    auto status = e->run_on_device({{"x", {DType::F32, {n}, reinterpret_cast<void*>(in[i])}}}, given, stream);
    EXPECT_TRUE(status.ok() && e->wait().ok());
    EXPECT_EQ(reinterpret_cast<const float*>(out[i])[9], from + 9 + kSteps);
    return gpu.calls["cuLaunchKernel"];
  };
  // Two pairs in turn, as with double buffering: each has its graph.
  for (size_t i : {0u, 1u, 0u, 1u}) EXPECT_EQ(call(i), kSteps);
  for (size_t i : {0u, 1u, 1u, 0u}) EXPECT_EQ(call(i), 0);
  // Others every time: none is captured, and the oldest addresses are forgotten.
  for (size_t i : {2u, 3u, 4u, 5u}) EXPECT_EQ(call(i), kSteps);
  EXPECT_EQ(call(0), kSteps);
  // Two graphs were made, and are changed to other addresses.
  for (size_t i : {4u, 5u, 4u, 5u}) {
    call(i);
    EXPECT_EQ(gpu.calls["cuGraphInstantiateWithFlags"], 0);
    EXPECT_EQ(gpu.live_graphs(), 2u);
  }
  EXPECT_EQ(call(5), 0);
}

// An allocator of the caller's returns memory to the driver, and gets other memory at the same address.
TEST_F(Repeated, AGraphThatCopiesFreedMemoryIsRecordedAgain) {
  for (bool with_copy : {true, false}) {
    auto e = executor(false, with_copy);
    const int64_t n = 64;
    const uint64_t in = gpu.allocate(256), out = gpu.allocate(256);
    auto captures = [&] {
      auto x = ramp(n, 1);
      std::memcpy(reinterpret_cast<void*>(in), x.data(), 256);
      gpu.calls.clear();
      auto given = {DeviceTensor{DType::F32, {n}, reinterpret_cast<void*>(out)}};
      auto status = e->run_on_device({{"x", {DType::F32, {n}, reinterpret_cast<void*>(in)}}}, given,
                                     reinterpret_cast<void*>(uintptr_t{0x70}));
      EXPECT_TRUE(status.ok() && e->wait().ok());
      EXPECT_EQ(reinterpret_cast<const float*>(out)[9], 10.0f + kSteps);
      return gpu.calls["cuStreamBeginCapture"];
    };
    captures();
    EXPECT_EQ(captures(), 1);
    for (int round = 0; round < 2 * Recorder::kMaxCaptures; ++round) {
      EXPECT_EQ(captures(), 0);
      EXPECT_EQ(gpu.calls["cuGraphLaunch"], 1);
      gpu.reallocate(in);
      gpu.reallocate(out);
      EXPECT_EQ(captures(), with_copy) << "kernels have addresses, and nothing else";
      EXPECT_EQ(gpu.calls["cuGraphLaunch"], 1);
      EXPECT_EQ(gpu.live_graphs(), 1u);
    }
  }
}

TEST_F(Repeated, GraphsOfShapesThatComeNoMoreMakeRoomForOthers) {
  constexpr int kShapes = 3 * cuda::GraphRoom::kMaxBytes / (cuda::GraphRoom::kGraph + kSteps * cuda::GraphRoom::kStep);
  options.memory = std::make_shared<MemoryAccount>(0);
  auto e = executor();
  run(*e, 2000); // the largest: memory stays where it is
  size_t most = 0;
  int64_t counted = 0;
  for (int n = 1; n <= kShapes; ++n) {
    for (int round = 0; round < 3; ++round) run(*e, n);
    most = std::max(most, gpu.live_graphs());
    counted = std::max(counted, options.memory->held(MemoryAccount::Where::Host));
  }
  EXPECT_LE(most, static_cast<size_t>(kShapes) / 3 + 1);
  EXPECT_GE(most, static_cast<size_t>(kShapes) / 4);
  EXPECT_GE(counted, cuda::GraphRoom::kMaxBytes / 4 * 3);
  EXPECT_EQ(run(*e, kShapes)["cuGraphLaunch"], 1) << "the last shapes have theirs";
  for (int round = 0; round < 3; ++round) run(*e, 1);
  EXPECT_EQ(run(*e, 1)["cuGraphLaunch"], 1) << "one that comes again gets another";
  ASSERT_TRUE(e->trim().ok());
  EXPECT_EQ(gpu.live_graphs(), 0u);
  EXPECT_EQ(options.memory->held(MemoryAccount::Where::Host), 0);
}

TEST_F(Repeated, GraphsCountForTheMemoryLimit) {
  options.memory = std::make_shared<MemoryAccount>(1 << 20);
  auto e = executor();
  for (int n = 1; n <= 40; ++n)
    for (int round = 0; round < 3; ++round) run(*e, n);
  EXPECT_LE(options.memory->peak(), 1 << 20);
  EXPECT_GE(gpu.live_graphs(), 1u);
  EXPECT_LE(gpu.live_graphs(), 6u);
}

TEST_F(Repeated, AGraphThatCannotBeChangedIsMadeAnew) {
  auto e = executor();
  for (int round = 0; round < 3; ++round) run(*e, 50);
  std::vector<uint64_t> kept;
  const int64_t n = 50;
  auto call = [&](uint64_t in, uint64_t out) {
    auto x = ramp(n, 1);
    std::memcpy(reinterpret_cast<void*>(in), x.data(), 200);
    gpu.calls.clear();
    auto given = {DeviceTensor{DType::F32, {n}, reinterpret_cast<void*>(out)}};
    auto status = e->run_on_device({{"x", {DType::F32, {n}, reinterpret_cast<void*>(in)}}}, given,
                                   reinterpret_cast<void*>(uintptr_t{0x70}));
    EXPECT_TRUE(status.ok() && e->wait().ok());
    EXPECT_EQ(reinterpret_cast<const float*>(out)[9], 10.0f + kSteps);
  };
  for (int i = 0; i < 4; ++i) call(gpu.allocate(256), gpu.allocate(256));
  gpu.fail("cuGraphExecUpdate", 0, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  const auto in = gpu.allocate(256), out = gpu.allocate(256);
  call(in, out);
  call(in, out);
  EXPECT_EQ(gpu.calls["cuGraphExecUpdate"] + gpu.calls["cuGraphInstantiateWithFlags"], 1);
  call(in, out);
  EXPECT_EQ(gpu.calls["cuGraphLaunch"], 1);
}

// Another thread that waits for the whole device ends a capture.
TEST_F(Repeated, ADisturbedCaptureIsTriedAgain) {
  auto e = executor();
  run(*e, 50);
  gpu.fail("cuStreamEndCapture", 0, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(run(*e, 50)["cuLaunchKernel"], 2 * kSteps) << "captured in vain, and launched";
  EXPECT_EQ(run(*e, 50)["cuGraphLaunch"], 1);
  EXPECT_EQ(gpu.live_graphs(), 1u);

  auto other = executor();
  run(*other, 50);
  for (int round = 0; round < Recorder::kMaxCaptures; ++round) {
    gpu.fail("cuStreamEndCapture", 0, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    run(*other, 50);
  }
  EXPECT_EQ(run(*other, 50)["cuStreamBeginCapture"], 0) << "it is not tried for ever";
}

// Whichever way a call goes, its results are right.
TEST_F(Repeated, TheGraphIsMadeBesideTheCalls) {
  options.wait_for_plans = false;
  constexpr int kMax = 100000; // a loaded machine gives the thread that makes it no time for long
  auto e = executor();
  for (int64_t n : {100, 70}) {
    int calls = 0;
    while (run(*e, n, static_cast<float>(calls))["cuGraphLaunch"] == 0 && calls < kMax) {
      ASSERT_TRUE(e->wait().ok());
      ++calls;
    }
    EXPECT_LT(calls, kMax) << "launched singly for longer than recording takes, it is recorded";
    EXPECT_GE(calls, 1);
  }
  EXPECT_EQ(gpu.live_graphs(), 2u);
  for (int64_t n = 1; n < 40; ++n)
    for (int round = 0; round < 2; ++round) run(*e, n);
  e.reset(); // while some are waiting to be recorded
  EXPECT_EQ(gpu.live_graphs(), 0u);
}

TEST_F(Repeated, ViolationsAreFound) {
  auto e = executor();
  for (int round = 0; round < 4; ++round) {
    auto r = e->run({{"x", ramp(4, -3)}});
    ASSERT_FALSE(r.ok());
    EXPECT_TRUE(r.error().message.ends_with(" of 'x' is out of range in more")) << r.error().message;
    EXPECT_EQ(r.error().notes, std::vector<std::string>{"found by kernel 'kernel 0'"});
    run(*e, 4);
  }
  EXPECT_GT(gpu.calls["cuGraphLaunch"], 0);
}

TEST_F(Repeated, StepsGoOneByOneWhereCapturingFails) {
  for (const char* function :
       {"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuLaunchKernel"})
    for (auto result : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY}) {
      auto e = executor();
      run(*e, 50);
      gpu.fail(function, function == std::string("cuLaunchKernel") ? 3 : 0, result);
      EXPECT_GE(run(*e, 50)["cuLaunchKernel"], kSteps) << function;
      EXPECT_EQ(run(*e, 50)["cuLaunchKernel"], kSteps) << "it is not tried again";
      EXPECT_EQ(gpu.live_graphs(), 0u);
    }
}

TEST_F(Repeated, ErrorsThatBreakTheContextAreTold) {
  for (bool by_kernel : {true, false}) {
    options.gpu_context = nullptr;
    auto e = executor();
    run(*e, 50);
    run(*e, 50);
    if (!by_kernel) gpu.fail("cuGraphLaunch", 0, CUDA_ERROR_ILLEGAL_ADDRESS);
    auto r = e->run({{"x", ramp(50, by_kernel ? kBreaks : 0)}});
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::DeviceError);
    auto steps = r.error().str().find("one of the 8 steps from 'kernel 0' to 'kernel 7' failed");
    EXPECT_EQ(steps != std::string::npos, by_kernel) << r.error().str();
    EXPECT_FALSE(e->run({{"x", ramp(50)}}).ok());
    e = nullptr;
    gpu.repair();
  }
}

TEST_F(Repeated, NotWhereSomethingHappensBetweenTheSteps) {
  {
    auto e = executor(true); // on the host
    for (int round = 0; round < 3; ++round) EXPECT_EQ(run(*e, 10)["cuLaunchKernel"], kSteps);
  }
  options.profile = true;
  {
    auto e = executor();
    RunStats stats; // who gives none gets no profile, and a replay
    for (int round = 0; round < 3; ++round) EXPECT_EQ(run(*e, 10, 0, &stats)["cuLaunchKernel"], kSteps);
    for (int round = 0; round < 2; ++round) run(*e, 10);
    EXPECT_EQ(run(*e, 10)["cuGraphLaunch"], 1);
  }
  options.profile = false;
  options.synchronize_launches = true;
  auto e = executor();
  for (int round = 0; round < 3; ++round) EXPECT_EQ(run(*e, 10)["cuStreamSynchronize"], kSteps + 1);
}

} // namespace
} // namespace tessera
