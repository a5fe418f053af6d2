// Calls on a stream that the caller captures into a CUDA graph of its own: what is asked of the driver meanwhile, and what the
// graph does when it runs, often and next to later calls.
#include "executor_harness.h"
#include "runtime/cuda/captured_calls.h"
#include <thread>

namespace tessera {
namespace {
using namespace test;

class Captured : public OnGpu {
protected:
  Captured() { options.poison = false; }
  ~Captured() override {
    for (CUgraphExec graph : graphs) gpu.drop(graph);
    forget();
  }
  // Frees what graphs that are gone held. The next call would do so, too.
  void forget() {
    if (!options.gpu_context) return;
    const cuda::Context::Current current(*options.gpu_context);
    cuda::CapturedCalls::of(*options.gpu_context).value()->free_unused();
  }

  // Memory of the caller for a call of n elements.
  struct Place {
    uint64_t x = 0, y = 0;
    int64_t n = 0;
  };
  Place place(int64_t n, uint64_t offset = 0) {
    return {gpu.allocate(static_cast<size_t>(4 * n) + 64) + offset,
            gpu.allocate(static_cast<size_t>(4 * n) + 64) + offset, n};
  }
  static void fill(const Place& p, float from) {
    const auto in = ramp(p.n, from);
    std::memcpy(reinterpret_cast<void*>(p.x), in.data(), static_cast<size_t>(4 * p.n));
    std::memset(reinterpret_cast<void*>(p.y), 0, static_cast<size_t>(4 * p.n));
  }
  static Status call(Executor& e, const Place& p, void* stream) {
    const auto given = {device(p.y, p.n)};
    return e.run_on_device({{"x", device(p.x, p.n)}}, given, stream);
  }
  void warm(Executor& e, const Place& p, float from = 1) {
    fill(p, from);
    const Status done = call(e, p, kStream);
    EXPECT_TRUE(done.ok() && e.wait().ok());
    EXPECT_EQ(at_address(p.y, p.n), expected(ramp(p.n, from)));
  }
  CUgraphExec capture(const std::function<void()>& body, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL,
                      void* stream = kStream) {
    gpu.begin_capture(stream, mode);
    gpu.calls.clear();
    body();
    auto* graph = gpu.end_capture(stream);
    EXPECT_NE(graph, nullptr) << "the capture has failed";
    if (graph) graphs.push_back(graph);
    return graph;
  }
  // A replay with other values.
  void check(CUgraphExec graph, const Place& p, float from, void* stream = kOther) {
    fill(p, from);
    gpu.replay(graph, stream);
    gpu.run_all();
    EXPECT_EQ(at_address(p.y, p.n), expected(ramp(p.n, from))) << from;
  }
  void drop(CUgraphExec graph) {
    gpu.drop(graph);
    std::erase(graphs, graph);
  }

  static inline void* const kStream = reinterpret_cast<void*>(uintptr_t{0x70});
  static inline void* const kOther = reinterpret_cast<void*>(uintptr_t{0x80});
  std::vector<CUgraphExec> graphs;
};

TEST_F(Captured, AWarmCallIsRecordedAndNothingElseIsAsked) {
  for (int pools : {1, 0})
    for (auto mode :
         {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
      gpu.pools = pools;
      options.gpu_context = nullptr;
      auto e = executor(chain());
      const auto p = place(100);
      warm(*e, p);
      std::map<std::string, int> first, second;
      auto* graph = capture(
          [&] {
            ASSERT_TRUE(call(*e, p, kStream).ok());
            first = std::exchange(gpu.calls, {});
            ASSERT_TRUE(call(*e, p, kStream).ok());
            second = gpu.calls;
          },
          mode);
      const std::map<std::string, int> steps{{"cuStreamIsCapturing", 2}, {"cuLaunchKernel", 2}};
      EXPECT_EQ(second, steps);
      auto with_memory = steps;
      with_memory["cuMemAlloc"] = with_memory["cuUserObjectCreate"] = with_memory["cuGraphRetainUserObject"] = 1;
      EXPECT_EQ(first, with_memory);
      for (int round = 0; round < 5; ++round) check(graph, p, static_cast<float>(10 * round));
      drop(graph);
      forget();
    }
}

TEST_F(Captured, ReplaysAndLaterCallsDoNotMeet) {
  auto e = executor(chain());
  const auto small = place(64), other = place(64), large = place(500000);
  warm(*e, small);
  auto* graph = capture([&] { ASSERT_TRUE(call(*e, small, kStream).ok()); });
  for (int round = 0; round < 4; ++round) {
    const auto from = static_cast<float>(round);
    fill(small, from);
    fill(other, from + 100);
    // Begun on two streams, in either order; then the arena grows, and lies elsewhere.
    if (round % 2 == 0) gpu.replay(graph, kOther);
    ASSERT_TRUE(call(*e, other, kStream).ok());
    if (round % 2 == 1) gpu.replay(graph, kOther);
    if (round == 1) warm(*e, large, 7);
    gpu.run_all();
    EXPECT_EQ(at_address(small.y, 64), expected(ramp(64, from)));
    EXPECT_EQ(at_address(other.y, 64), expected(ramp(64, from + 100)));
  }
  ASSERT_TRUE(e->trim().ok());
  check(graph, small, 3);
  // The temporary of the graph is nobody else's.
  std::set<uint64_t> of_graph, of_calls;
  gpu.launches.clear();
  check(graph, small, 4);
  of_graph.insert(gpu.launches.front().args[1]);
  for (int round = 0; round < 3; ++round) {
    gpu.launches.clear();
    warm(*e, other);
    of_calls.insert(gpu.launches.front().args[1]);
  }
  for (uint64_t address : of_calls) EXPECT_FALSE(of_graph.contains(address));
}

TEST_F(Captured, AColdCallSaysWhatToDoAndLeavesTheCaptureAsItWas) {
  auto e = executor(chain());
  const auto p = place(32), new_size = place(33);
  auto refused = [&](const Place& at) {
    const Status done = call(*e, at, kStream);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, ErrorCode::Usage);
    EXPECT_NE(done.error().str().find("call it once before capturing"), std::string::npos) << done.error().str();
  };
  capture([&] { refused(p); });
  warm(*e, p);
  gpu.launched.clear();
  auto* graph = capture([&] {
    refused(new_size);
    ASSERT_TRUE(call(*e, p, kStream).ok());
    refused(new_size);
  });
  check(graph, p, 5);
  EXPECT_EQ(gpu.launched.size(), 2u);
  warm(*e, new_size); // and outside everything works
}

TEST_F(Captured, AMissIsNotCompiledInACapture) {
  int compiled = 0;
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
  kernel(b, "twice", x, t, s);
  kernel(b, "twice", t, y, s);
  b.exe->env->add_guard({sym_le(s, 64), GuardClass::Assumed, "small", {}});
  auto e = executor(b.done(), [&](const GuardMiss&) {
    ++compiled;
    return Result<std::shared_ptr<const Executable>>(chain());
  });
  const auto p = place(100);
  capture([&] {
    const Status done = call(*e, p, kStream);
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().str().find("call it once before capturing"), std::string::npos) << done.error().str();
  });
  EXPECT_EQ(compiled, 0);
  warm(*e, p);
  EXPECT_EQ(compiled, 1);
  check(capture([&] { ASSERT_TRUE(call(*e, p, kStream).ok()); }), p, 9);
}

TEST_F(Captured, MisalignedMemoryIsCopiedInTheGraph) {
  auto e = executor(chain());
  const auto p = place(50, 4);
  warm(*e, p);
  auto* graph = capture([&] { ASSERT_TRUE(call(*e, p, kStream).ok()); });
  EXPECT_EQ(gpu.calls["cuMemcpyDtoDAsync"], 2);
  warm(*e, place(9000, 4)); // uses its own
  for (float from : {3.0f, 8.0f}) check(graph, p, from);
}

TEST_F(Captured, MemoryIsTheGraphsAndComesBackWithIt) {
  options.memory = std::make_shared<MemoryAccount>(0);
  auto e = executor(chain());
  const auto p = place(300000);
  warm(*e, p);
  auto device = [&] { return options.memory->held(MemoryAccount::Where::Device); };
  const int64_t held = device(), live = gpu.live_bytes();
  auto* one = capture([&] {
    for (int k = 0; k < 5; ++k) ASSERT_TRUE(call(*e, p, kStream).ok());
  });
  const int64_t of_graph = gpu.live_bytes() - live;
  EXPECT_GE(of_graph, 4 * p.n);
  EXPECT_LT(of_graph, 2 * 4 * p.n) << "calls of a capture share";
  EXPECT_EQ(device() - held, of_graph) << "it is counted";
  auto* two = capture([&] { ASSERT_TRUE(call(*e, p, kStream).ok()); });
  EXPECT_EQ(gpu.live_bytes() - live, 2 * of_graph) << "graphs may run at the same time";
  drop(one);
  auto* three = capture([&] { ASSERT_TRUE(call(*e, p, kStream).ok()); });
  EXPECT_EQ(gpu.calls["cuMemAlloc"], 0) << "memory of a graph that is gone is used again";
  EXPECT_EQ(device() - held, 2 * of_graph);
  check(two, p, 2);
  check(three, p, 3);
  drop(two);
  drop(three);
  warm(*e, p);
  EXPECT_EQ(gpu.live_bytes(), live);
  EXPECT_EQ(device(), held);
  // A capture that is given up, too.
  gpu.begin_capture(kStream);
  ASSERT_TRUE(call(*e, p, kStream).ok());
  {
    const cuda::Context::Current current(*options.gpu_context);
    unsigned long long id = 0;
    ASSERT_NE(gpu.driver()->cuStreamGetId(static_cast<CUstream>(kStream), &id), CUDA_SUCCESS);
  }
  const Status failed = call(*e, p, kStream);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("has failed before"), std::string::npos) << failed.error().message;
  EXPECT_EQ(gpu.end_capture(kStream), nullptr);
  warm(*e, p);
  EXPECT_EQ(gpu.live_bytes(), live);
}

TEST_F(Captured, ALimitHolds) {
  options.memory_limit = 3 << 20;
  auto e = executor(chain());
  const auto p = place(400000);
  warm(*e, p);
  capture([&] {
    const Status done = call(*e, p, kStream);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, ErrorCode::OutOfMemory);
  });
  warm(*e, p);
}

TEST_F(Captured, SeveralStreamsOfACaptureHaveMemoryOfTheirOwn) {
  auto e = executor(chain());
  const auto p = place(64), q = place(64);
  warm(*e, p);
  CUevent fork = nullptr, join = nullptr;
  const auto& d = *gpu.driver();
  const auto context = gpu.context();
  const cuda::Context::Current current(*context);
  ASSERT_EQ(d.cuEventCreate(&fork, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&join, 0), CUDA_SUCCESS);
  auto *stream = static_cast<CUstream>(kStream), *side = static_cast<CUstream>(kOther);
  auto* graph = capture([&] {
    ASSERT_EQ(d.cuEventRecord(fork, stream), CUDA_SUCCESS);
    ASSERT_EQ(d.cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    ASSERT_TRUE(call(*e, p, kStream).ok());
    ASSERT_TRUE(call(*e, q, kOther).ok());
    ASSERT_EQ(d.cuEventRecord(join, side), CUDA_SUCCESS);
    ASSERT_EQ(d.cuStreamWaitEvent(stream, join, 0), CUDA_SUCCESS);
  });
  gpu.launches.clear();
  fill(q, 20);
  check(graph, p, 10);
  EXPECT_EQ(at_address(q.y, 64), expected(ramp(64, 20)));
  ASSERT_EQ(gpu.launches.size(), 4u);
  EXPECT_NE(gpu.launches[0].args[1], gpu.launches[2].args[1]) << "the temporaries";
}

TEST_F(Captured, WhatNeedsTheHostIsRefused) {
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
  kernel(b, "twice", x, t, s);
  HostStep h;
  h.name = "on the host";
  h.op = "same";
  h.inputs = {t};
  h.outputs = {y};
  h.run = [](const std::vector<Tensor>& in, const std::unordered_map<uint64_t, int64_t>&) {
    return Result<std::vector<Tensor>>(in);
  };
  b.exe->steps.emplace_back(h);
  auto e = executor(b.done());
  const auto p = place(16);
  fill(p, 1);
  ASSERT_TRUE(call(*e, p, kStream).ok() && e->wait().ok());
  capture([&] {
    const Status done = call(*e, p, kStream);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, ErrorCode::UnsupportedFeature);
    EXPECT_NE(done.error().message.find("'on the host' runs on the host"), std::string::npos) << done.error().message;
  });
  EXPECT_EQ(gpu.calls["cuLaunchKernel"], 0);
}

// Counters and mailboxes are clear whenever the graph runs, whatever happened to them.
TEST_F(Captured, KernelsWhoseBlocksWaitHaveClearCounters) {
  std::set<uint64_t> counters;
  gpu.kernel("meets", 6, [&](const FakeGpu::Launch& l) {
    auto n = static_cast<int64_t>(l.args[4]);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(gpu.at<uint32_t>(l.args[2], 3)[i] & 0x7fffffffu, 0u);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(gpu.at<uint32_t>(l.args[3], 5)[i], 0u);
    counters.insert(l.args[2]);
    const auto* from = gpu.at<float>(l.args[0], n);
    auto* to = gpu.at<float>(l.args[1], n);
    for (int64_t i = 0; i < n; ++i) to[i] = 2 * from[i] + static_cast<float>(n);
    return CUDA_SUCCESS;
  });
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
  for (auto [from, to] : {std::pair(x, t), std::pair(t, y)}) {
    auto meets = launch(b, "meets", from, to, s);
    meets.counters = 3;
    meets.mailboxes = 5;
    b.exe->steps.emplace_back(meets);
  }
  auto e = executor(b.done());
  const auto p = place(64);
  warm(*e, p);
  counters.clear();
  auto* graph = capture([&] { ASSERT_TRUE(call(*e, p, kStream).ok()); });
  check(graph, p, 2);
  ASSERT_EQ(counters.size(), 1u);
  std::memset(reinterpret_cast<void*>(*counters.begin()), 0x55, 12); // a run that was given up
  check(graph, p, 3);
  warm(*e, p);
  EXPECT_EQ(counters.size(), 2u) << "those of calls are others";
}

// Kernels of which one may run at a time are ordered by events: a graph has others in their place.
TEST_F(Captured, NoKernelIsOrderedWithOtherStreams) {
  for (const char* name : {"safe", "waits"})
    gpu.kernel(name, std::string(name) == "waits" ? 5 : 4, [this, name](const FakeGpu::Launch& l) {
      auto n = static_cast<int64_t>(l.args[std::string(name) == "waits" ? 3 : 2]);
      const auto* from = gpu.at<float>(l.args[0], n);
      auto* to = gpu.at<float>(l.args[1], n);
      for (int64_t i = 0; i < n; ++i) to[i] = 4 * from[i] + 3 * static_cast<float>(n);
      return CUDA_SUCCESS;
    });
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), y = b.output("y", {s});
  auto k = launch(b, "safe", x, y, s), waits = launch(b, "waits", x, y, s);
  waits.counters = 1;
  waits.cooperative_blocks = 8;
  k.alternatives = {waits};
  b.exe->steps.emplace_back(k);
  auto e = executor(b.done());
  const auto p = place(10000 * 64);
  warm(*e, p);
  EXPECT_EQ(gpu.launched.back(), "waits");
  auto* graph = capture([&] { ASSERT_TRUE(call(*e, p, kStream).ok()); });
  EXPECT_EQ(gpu.calls["cuModuleLoadDataEx"], 0);
  check(graph, p, 2);
  EXPECT_EQ(gpu.launched.back(), "safe");
  warm(*e, p);
  EXPECT_EQ(gpu.launched.back(), "waits");
}

TEST_F(Captured, BadIndicesOfAReplayAreToldByTheNextCall) {
  auto e = executor(chain("checked", "twice"));
  const auto p = place(8);
  warm(*e, p);
  auto* graph = capture([&] { ASSERT_TRUE(call(*e, p, kStream).ok()); });
  check(graph, p, 2);
  warm(*e, p);
  for (int round = 0; round < 2; ++round) {
    fill(p, -3);
    gpu.replay(graph, kOther);
    gpu.run_all();
    fill(p, 1);
    const Status told = call(*e, p, kStream);
    ASSERT_FALSE(told.ok());
    EXPECT_EQ(told.error().code, ErrorCode::EarlierCall);
    EXPECT_TRUE(told.error().message.ends_with(" of 'x' is out of range in checked")) << told.error().message;
    warm(*e, p);
  }
}

TEST_F(Captured, AGraphMayOutliveItsExecutor) {
  options.memory = std::make_shared<MemoryAccount>(0);
  options.gpu_context = gpu.context();
  // y[i] = x[i] * w[0] + w[1]
  gpu.kernel("weighted", 5, [this](const FakeGpu::Launch& l) {
    auto n = static_cast<int64_t>(l.args[3]);
    const auto *x = gpu.at<float>(l.args[0], n), *w = gpu.at<float>(l.args[1], 2);
    auto* y = gpu.at<float>(l.args[2], n);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * w[0] + w[1];
    (void)gpu.at<IndexReport>(l.args[4], 1);
    return CUDA_SUCCESS;
  });
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), y = b.output("y", {s});
  Tensor weights = ramp(2, 4);
  auto w = b.constant("w", weights);
  auto k = Builder::launch("weighted", nullptr, {x, w}, {y}, {s}, ceildiv(s, 64));
  k.threads = 64;
  k.object = 0;
  b.exe->objects.push_back(object("weighted"));
  b.exe->steps.emplace_back(k);
  auto e = executor(b.done());
  const auto p = place(20);
  fill(p, 1);
  ASSERT_TRUE(call(*e, p, kStream).ok() && e->wait().ok());
  auto* graph = capture([&] { ASSERT_TRUE(call(*e, p, kStream).ok()); });
  e = nullptr;
  EXPECT_EQ(gpu.calls["cuModuleUnload"], 0);
  fill(p, 3);
  gpu.replay(graph, kOther);
  gpu.run_all();
  EXPECT_EQ(at_address(p.y, 2), (std::vector<float>{17, 21}));
  drop(graph);
  forget();
  gpu.run_all();
  EXPECT_EQ(gpu.calls["cuModuleUnload"], 1);
  EXPECT_EQ(options.memory->held(MemoryAccount::Where::Device), 0);
}

// A process that captures on one thread, in the mode that forbids most, and calls other models on others.
TEST_F(Captured, OtherThreadsDoNotEndACapture) {
  options.gpu_context = gpu.context();
  auto e = executor(chain());
  const auto p = place(64);
  warm(*e, p);
  const auto exe = chain();
  auto* graph = capture([&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t)
      threads.emplace_back([&, t] {
        ExecutorOptions own;
        own.gpu_context = options.gpu_context;
        own.pool = options.pool;
        auto cold = Executor::create({exe}, own).value();
        for (int64_t n : {10, 5000}) {
          auto r = cold->run({{"x", ramp(n, static_cast<float>(t))}});
          ASSERT_TRUE(r.ok()) << r.error().str();
          EXPECT_EQ(values((*r)[0]), expected(ramp(n, static_cast<float>(t))));
        }
      });
    ASSERT_TRUE(call(*e, p, kStream).ok());
    for (auto& thread : threads) thread.join();
    // And on the thread that captures, next to the capture.
    auto r = executor(exe)->run({{"x", ramp(7)}});
    ASSERT_TRUE(r.ok()) << r.error().str();
  });
  check(graph, p, 6);
}

// Outputs of callers that have no allocator, made while they capture.
TEST_F(Captured, MemoryThatIsPassedOnIsNotTheGraphs) {
  options.gpu_context = gpu.context();
  const int64_t live = gpu.live_bytes();
  std::unique_ptr<cuda::SharedBlock> block;
  capture([&] {
    auto made = cuda::SharedBlock::create(options.gpu_context, 400, static_cast<CUstream>(kStream), "a result");
    ASSERT_TRUE(made.ok()) << made.error().str();
    block = std::move(*made);
  });
  EXPECT_EQ(gpu.calls["cuMemAllocFromPoolAsync"], 0);
  EXPECT_TRUE(gpu.alive(reinterpret_cast<uint64_t>(block->data()), 400));
  block = nullptr;
  EXPECT_EQ(gpu.live_bytes(), live);
}

// ---- scratch memory of the caller

class Scratch : public Captured {
protected:
  Scratch() { options.memory = std::make_shared<MemoryAccount>(0); }
  Status call_in(Executor& e, const Place& p, void* stream) {
    ++calls;
    const OutputAllocator outputs = [&](size_t, DType, const Dims&) {
      return Result<void*>(reinterpret_cast<void*>(p.y));
    };
    const ScratchAllocator scratch = [&](int64_t bytes) -> Result<void*> {
      requested.push_back(bytes);
      return give(bytes);
    };
    const std::vector<DeviceTensor> in{device(p.x, p.n)};
    return e.call(in, outputs, stream, nullptr, &scratch);
  }
  std::function<void*(int64_t)> give = [this](int64_t bytes) {
    return reinterpret_cast<void*>(gpu.allocate(static_cast<size_t>(bytes)));
  };
  std::vector<int64_t> requested;
  int calls = 0;
};

TEST_F(Scratch, AllTemporariesLieInIt) {
  auto e = executor(chain());
  const int64_t before = options.memory->held(MemoryAccount::Where::Device);
  for (int64_t n : {64, 300000, 64}) {
    const auto p = place(n);
    fill(p, 2);
    requested.clear();
    gpu.launches.clear();
    ASSERT_TRUE(call_in(*e, p, kStream).ok() && e->wait().ok());
    EXPECT_EQ(at_address(p.y, n), expected(ramp(n, 2)));
    EXPECT_EQ(requested, std::vector<int64_t>{(4 * n + 255) / 256 * 256}) << "once a call";
    EXPECT_EQ(options.memory->held(MemoryAccount::Where::Device), before) << "nothing is held";
  }
  // A call without it afterwards has memory of the executor's.
  const auto p = place(64);
  warm(*e, p);
  EXPECT_GT(options.memory->held(MemoryAccount::Where::Device), before);
}

TEST_F(Scratch, WhereThereIsNoneTheCallEndsAndTheNextIsRight) {
  auto e = executor(chain());
  const auto p = place(64);
  auto working = give;
  give = [](int64_t) { return nullptr; };
  fill(p, 1);
  Status done = call_in(*e, p, kStream);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::OutOfMemory);
  EXPECT_EQ(done.error().message, "the caller has no memory for intermediate results of 256 bytes");
  give = [working](int64_t bytes) { return static_cast<std::byte*>(working(bytes + 16)) + 16; };
  done = call_in(*e, p, kStream);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::Usage);
  give = working;
  ASSERT_TRUE(call_in(*e, p, kStream).ok() && e->wait().ok());
  EXPECT_EQ(at_address(p.y, 64), expected(ramp(64, 1)));
}

TEST_F(Scratch, ACapturedCallTakesItFromTheCapturesPool) {
  auto e = executor(chain());
  const auto p = place(64);
  fill(p, 1);
  ASSERT_TRUE(call_in(*e, p, kStream).ok() && e->wait().ok());
  requested.clear();
  auto* graph = capture([&] { ASSERT_TRUE(call_in(*e, p, kStream).ok()); });
  EXPECT_EQ(gpu.calls["cuMemAlloc"], 0);
  EXPECT_EQ(requested.size(), 1u);
  for (float from : {4.0f, 5.0f}) {
    check(graph, p, from);
    ASSERT_TRUE(call_in(*e, p, kOther).ok() && e->wait().ok());
  }
}

} // namespace
} // namespace tessera
