// The executor on the fake GPU: copies, arena, host steps, alternatives, programs that meet, profiles.
#include "base/log.h"
#include "executor_harness.h"
#include <filesystem>
#include <unistd.h>

namespace tessera {
namespace {
using namespace test;

TEST_F(OnGpu, EveryShapeRunsAndNothingIsLeft) {
  {
    auto e = executor(chain());
    for (int round = 0; round < 2; ++round)
      for (int64_t n : {1, 100, 0, 70000, 7}) {
        RunStats stats;
        auto x = ramp(n);
        auto r = e->run({{"x", x}}, &stats);
        ASSERT_TRUE(r.ok()) << r.error().str();
        EXPECT_EQ(values((*r)[0]), expected(x)) << n;
        EXPECT_EQ(stats.new_shape, round == 0);
        EXPECT_EQ(stats.arena_bytes, (n * 4 + 255) / 256 * 256);
      }
    EXPECT_EQ(gpu.loaded.size(), 2u) << "each object once";
  }
  options.gpu_context = nullptr;
  gpu.run_all();
  EXPECT_EQ(gpu.live_bytes(), 0);
  EXPECT_EQ(gpu.live_pinned(), 0u);
  EXPECT_EQ(gpu.retained(), 0);
}

TEST_F(OnGpu, ASteadyRunIsCopiesAndLaunches) {
  options.poison = false;
  auto e = executor(chain());
  auto x = ramp(1000);
  ASSERT_TRUE(e->run({{"x", x}}).ok());
  gpu.calls.clear();
  ASSERT_TRUE(e->run({{"x", x}}).ok());
  std::map<std::string, int> want{
      {"cuMemcpyHtoDAsync", 1}, {"cuLaunchKernel", 2}, {"cuMemcpyDtoHAsync", 1}, {"cuStreamSynchronize", 1}};
  EXPECT_EQ(gpu.calls, want);
}

TEST_F(OnGpu, GivenOutputsAreWritten) {
  auto e = executor(chain());
  std::vector<Tensor> out{ramp(10)};
  auto r = e->run({{"x", ramp(10, 5)}}, nullptr, &out);
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ((*r)[0].data(), out[0].data());
  EXPECT_EQ(values(out[0]), expected(ramp(10, 5)));
}

TEST_F(OnGpu, ConstantsAreUploadedOnceForAllExecutorsAndVariants) {
  std::weak_ptr<const Executable> gone;
  auto weights = ramp(3000, 1);
  auto make = [&] {
    auto b = builder();
    auto w = b.constant("w", weights), unused = b.constant("unused", ramp(50)), y = b.output("y", {3000});
    (void)unused;
    kernel(b, "twice", w, y, 3000);
    return b.done();
  };
  auto context = options.gpu_context = gpu.context();
  {
    auto first = make();
    gone = first;
    auto a = executor(first), b = executor(first), c = executor(make());
    for (auto* e : {a.get(), b.get(), c.get()}) {
      auto r = e->run({});
      ASSERT_TRUE(r.ok()) << r.error().str();
      EXPECT_EQ((*r)[0].as<float>()[2999], 2 * 3000 + 3000);
    }
    EXPECT_EQ(gpu.calls["cuMemcpyHtoDAsync"], 1) << "the constant that is read, once";
    EXPECT_EQ(gpu.loaded.size(), 2u) << "one module for two executors of one executable, one for the other";
  }
  EXPECT_TRUE(gone.expired());
  gpu.run_all();
  EXPECT_EQ(gpu.live_bytes(), 0);
  auto again = executor(make());
  ASSERT_TRUE(again->run({}).ok());
  EXPECT_EQ(gpu.calls["cuMemcpyHtoDAsync"], 2);
}

TEST_F(OnGpu, HostStepsAreCopiedForAndCounted) {
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), u = b.buffer("u", {s}), v = b.buffer("v", {s}),
       y = b.output("y", {s}), z = b.output("z", {s});
  kernel(b, "twice", x, t, s);
  auto negate = [](const std::vector<Tensor>& in, const std::unordered_map<uint64_t, int64_t>&) {
    Tensor out = Tensor::create(DType::F32, in[0].dims()).value();
    for (int64_t i = 0; i < out.count(); ++i) out.set_f64(i, -in[0].get_f64(i));
    return Result<std::vector<Tensor>>(std::vector<Tensor>{out});
  };
  auto host = [&](BufferId in, BufferId out) {
    HostStep h;
    h.name = h.op = "negate";
    h.inputs = {in};
    h.outputs = {out};
    h.run = negate;
    b.exe->steps.emplace_back(h);
  };
  host(t, u);
  host(u, v); // from host to host: not copied
  kernel(b, "twice", v, y, s);
  host(y, z);
  auto e = executor(b.done());
  for (int64_t n : {5, 300}) {
    RunStats stats;
    auto r = e->run({{"x", ramp(n)}}, &stats);
    ASSERT_TRUE(r.ok()) << r.error().str();
    EXPECT_EQ(values((*r)[0]), expected(ramp(n)));
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ((*r)[1].get_f64(i), -(*r)[0].get_f64(i));
    EXPECT_EQ(stats.host_steps, 3);
    EXPECT_EQ(stats.host_bytes, 4 * n * 4) << "t and y to the host, v and z to the GPU";
  }
}

// Elements above 20; it defines their number.
HostStep keeping_large(BufferId from, BufferId kept, const SymExpr& count) {
  HostStep h;
  h.name = h.op = "keep large";
  h.inputs = {from};
  h.outputs = {kept};
  h.defines = {{count, 0, 0}};
  h.run = [](const std::vector<Tensor>& in, const std::unordered_map<uint64_t, int64_t>&) {
    std::vector<double> large;
    for (int64_t i = 0; i < in[0].count(); ++i)
      if (in[0].get_f64(i) > 20) large.push_back(in[0].get_f64(i));
    return Result<std::vector<Tensor>>(
        std::vector<Tensor>{Tensor::of<double>(DType::F32, {static_cast<int64_t>(large.size())}, large)});
  };
  return h;
}

TEST_F(OnGpu, SizesThatAHostStepDefines) {
  auto b = builder();
  auto s = b.symbol("s"), k = b.symbol("k");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), kept = b.buffer("kept", {k}), u = b.buffer("u", {k}),
       y = b.output("y", {k}), whole = b.output("whole", {s});
  kernel(b, "twice", x, t, s);
  b.exe->steps.emplace_back(keeping_large(t, kept, k));
  kernel(b, "twice", kept, u, k);
  kernel(b, "twice", u, y, k);
  kernel(b, "twice", t, whole, s); // t lives on across the host step
  auto e = executor(b.done());
  for (int round = 0; round < 2; ++round)
    for (int64_t n : {10, 3, 500}) {
      auto r = e->run({{"x", ramp(n)}});
      ASSERT_TRUE(r.ok()) << r.error().str();
      std::vector<float> want;
      for (int64_t i = 0; i < n; ++i)
        if (auto t = static_cast<float>(2 * i + n); t > 20) want.push_back(t);
      auto count = static_cast<float>(want.size());
      for (auto& w : want) w = 4 * w + 3 * count;
      EXPECT_EQ(values((*r)[0]), want);
      EXPECT_EQ(values((*r)[1]), expected(ramp(n)));
    }
}

// The first variant assumes that the host step keeps all. What it knows of sizes before is not what the call comes to.
TEST_F(OnGpu, MemoryOfOutputsIsRequestedOnceTheSizesAreFinal) {
  const auto variant = [&](bool assumes) {
    auto b = builder();
    auto s = b.symbol("s"), k = b.symbol("k");
    auto x = b.input("x", {s}), kept = b.buffer("kept", {k}), early = b.output("early", {s}),
         y = b.output("y", {assumes ? s : k});
    kernel(b, "twice", x, early, s);
    b.exe->steps.emplace_back(keeping_large(early, kept, k));
    kernel(b, "twice", assumes ? early : kept, y, assumes ? s : k);
    if (assumes) b.exe->env->add_guard({sym_eq(k, s), GuardClass::Assumed, "all are kept", {}});
    return b.done();
  };
  auto made = create({variant(true), variant(false)});
  ASSERT_TRUE(made.ok()) << made.error().str();
  auto x = gpu.allocate(4096), early = gpu.allocate(4096), y = gpu.allocate(4096);
  auto* stream = reinterpret_cast<void*>(uintptr_t{0x77});
  for (int64_t n : {10, 30, 10, 3}) { // of 30 all are kept, of 3 none
    const Tensor in = ramp(n);
    std::memcpy(reinterpret_cast<void*>(x), in.data(), in.bytes());
    std::map<size_t, Dims> requested;
    const OutputAllocator give = [&](size_t output, DType, const Dims& dims) -> Result<void*> {
      EXPECT_TRUE(requested.emplace(output, dims).second) << "output " << output << " is requested twice";
      return reinterpret_cast<void*>(output == 0 ? early : y);
    };
    const DeviceTensor given[] = {device(x, n)};
    const Status done = (*made)->call(given, give, stream);
    ASSERT_TRUE(done.ok()) << done.error().str();
    gpu.run_all();
    ASSERT_TRUE((*made)->wait().ok());
    std::vector<float> twice, want;
    for (float v : values(in)) twice.push_back(2 * v + static_cast<float>(n));
    for (float t : twice)
      if (t > 20) want.push_back(t);
    const auto count = static_cast<int64_t>(want.size());
    for (float& w : want) w = 2 * w + static_cast<float>(count);
    EXPECT_EQ(requested, (std::map<size_t, Dims>{{0, {n}}, {1, {count}}}));
    EXPECT_EQ(at_address(early, n), twice);
    EXPECT_EQ(at_address(y, count), want);
  }
  const OutputAllocator over = [&](size_t, DType, const Dims&) -> Result<void*> { return reinterpret_cast<void*>(x); };
  const DeviceTensor given[] = {device(x, 10)};
  const Status refused = (*made)->call(given, over, stream);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("overlaps that of"), std::string::npos) << refused.error().str();
}

TEST_F(OnGpu, AlternativesAreTakenWhereTheirConditionsHold) {
  auto note = [this](const std::string& name) {
    gpu.kernel(name, 4, [this](const FakeGpu::Launch& l) {
      auto n = static_cast<int64_t>(l.args[2]);
      std::memcpy(gpu.at<float>(l.args[1], n), gpu.at<float>(l.args[0], n), static_cast<size_t>(n) * 4);
      return CUDA_SUCCESS;
    });
  };
  for (const char* name : {"any", "wide", "large"}) note(name);
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), y = b.output("y", {s});
  auto k = launch(b, "any", x, y, s), large = launch(b, "large", x, y, s), wide = launch(b, "wide", x, y, s);
  large.conditions = {{s, 1, 1000, INT64_MAX}};
  large.threads = 256;
  wide.conditions = {{s, 8, 0, INT64_MAX}, {s + 1, 1, 0, 500}};
  k.alternatives = {large, wide};
  b.exe->steps.emplace_back(k);
  auto e = executor(b.done());
  for (auto [n, name] : std::initializer_list<std::pair<int64_t, const char*>>{
           {7, "any"}, {8, "wide"}, {496, "wide"}, {504, "any"}, {999, "any"}, {1000, "large"}, {1001, "large"}}) {
    gpu.launched.clear();
    ASSERT_TRUE(e->run({{"x", ramp(n)}}).ok());
    EXPECT_EQ(gpu.launched, std::vector<std::string>{name}) << n;
    EXPECT_EQ(gpu.launches.back().threads, std::string(name) == "large" ? 256u : 64u);
  }
}

// Kernels whose programs meet get memory of the launch, and counters and mailboxes that are clear at the first launch and
// never touched by the executor again.
TEST_F(OnGpu, ProgramsThatMeetHaveMemoryOfTheirOwn) {
  std::vector<uint64_t> counters, mailboxes, workspaces;
  gpu.kernel("meets", 8, [&](const FakeGpu::Launch& l) {
    auto n = static_cast<int64_t>(l.args[6]);
    counters.push_back(l.args[4]);
    mailboxes.push_back(l.args[5]);
    workspaces.push_back(l.args[2]);
    std::memset(gpu.at<std::byte>(l.args[2], 8 * n), 1, static_cast<size_t>(8 * n)); // i64
    std::memset(gpu.at<std::byte>(l.args[3], 12), 1, 12);                            // f32
    EXPECT_GE(l.args[3], l.args[2] + static_cast<uint64_t>(8 * n));
    EXPECT_EQ(l.args[3] % 256, 0u);
    for (int64_t i = 0; i < 3; ++i) {
      auto* counter = gpu.at<uint32_t>(l.args[4], 3) + i;
      EXPECT_TRUE(*counter == 0 || *counter == 0x80000000u) << *counter;
      *counter ^= 0x80000000u; // a round
    }
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(gpu.at<uint32_t>(l.args[5], 5)[i], 0u);
    EXPECT_EQ(l.args[5] % 16, 0u);
    std::memcpy(gpu.at<float>(l.args[1], n), gpu.at<float>(l.args[0], n), static_cast<size_t>(n) * 4);
    return CUDA_SUCCESS;
  });
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
  auto meets = launch(b, "meets", x, t, s);
  meets.workspaces = {{DType::I64, s}, {DType::F32, 3}};
  meets.counters = 3;
  meets.mailboxes = 5;
  b.exe->steps.emplace_back(meets);
  meets = launch(b, "meets", t, y, s);
  meets.workspaces = {{DType::I64, s}, {DType::F32, 3}};
  meets.counters = 3;
  meets.mailboxes = 5;
  b.exe->steps.emplace_back(meets);
  auto exe = b.done();
  auto e = executor(exe);
  for (int64_t n : {10, 1000, 70000, 10}) {
    auto r = e->run({{"x", ramp(n)}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    EXPECT_EQ(values((*r)[0]), values(ramp(n)));
  }
  EXPECT_EQ(counters.size(), 8u);
  EXPECT_EQ(std::set<uint64_t>(counters.begin(), counters.end()).size(), 1u);
  EXPECT_EQ(std::set<uint64_t>(mailboxes.begin(), mailboxes.end()).size(), 1u);
  EXPECT_NE(mailboxes[0], counters[0]);
  // A failure to make or clear them is reported, and the next call works.
  for (const char* function : {"cuMemAllocFromPoolAsync", "cuMemsetD8Async"}) {
    options.poison = false;
    auto fresh = executor(exe);
    for (int nth = 0; nth < 6; ++nth) {
      gpu.fail(function, nth, CUDA_ERROR_OUT_OF_MEMORY, 2);
      (void)fresh->run({{"x", ramp(7)}});
      gpu.fail(function, 1000, CUDA_SUCCESS);
      auto r = fresh->run({{"x", ramp(7)}});
      ASSERT_TRUE(r.ok()) << r.error().str();
      EXPECT_EQ(values((*r)[0]), values(ramp(7)));
    }
  }
}

TEST_F(OnGpu, ProgramsThatWaitRunOnlyWhereAllOfThemAreResident) {
  for (const char* name : {"alone", "waits"})
    gpu.kernel(name, std::string(name) == "waits" ? 5 : 4, [this, name](const FakeGpu::Launch& l) {
      auto n = static_cast<int64_t>(l.args[std::string(name) == "waits" ? 3 : 2]);
      std::memcpy(gpu.at<float>(l.args[1], n), gpu.at<float>(l.args[0], n), static_cast<size_t>(n) * 4);
      return CUDA_SUCCESS;
    });
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), y = b.output("y", {s});
  auto k = launch(b, "alone", x, y, s), waits = launch(b, "waits", x, y, s);
  waits.counters = 1;
  waits.cooperative_blocks = waits.grid;
  k.alternatives = {waits};
  b.exe->steps.emplace_back(k);
  auto exe = b.done();
  auto path = std::filesystem::temp_directory_path() / ("tessera_team_" + std::to_string(::getpid()) + ".exe");
  ASSERT_TRUE(save_executable(*exe, path.string(), true).ok());
  auto loaded = load_executable(path.string(), {});
  ASSERT_TRUE(loaded.ok()) << loaded.error().str();
  std::filesystem::remove(path);
  for (int resident : {0, 1, 2}) {
    gpu.resident_blocks = resident;
    options.gpu_context = nullptr;
    auto e = executor(*loaded);
    for (int64_t n : {64, 132 * 64, 132 * 64 + 1, 264 * 64, 264 * 64 + 1}) {
      gpu.launched.clear();
      auto r = e->run({{"x", ramp(n)}});
      ASSERT_TRUE(r.ok()) << r.error().str();
      bool fits = n <= resident * 132 * 64;
      EXPECT_EQ(gpu.launched, std::vector<std::string>{fits ? "waits" : "alone"}) << n;
      EXPECT_EQ(gpu.launches.back().cooperative, fits);
      EXPECT_EQ(values((*r)[0]), values(ramp(n)));
    }
  }
  // Groups of cooperative blocks may follow each other, where there is room for two of them.
  for (int64_t cooperative_blocks : {1, 66, 67}) {
    auto cooperative = std::make_shared<Executable>(**loaded);
    std::get<KernelLaunch>(cooperative->steps[0]).alternatives[0].cooperative_blocks = cooperative_blocks;
    gpu.resident_blocks = 1;
    options.gpu_context = nullptr;
    auto e = executor(cooperative);
    std::string told;
    set_log_sink([](void* text, std::string_view, std::string_view line) { *static_cast<std::string*>(text) += line; },
                 &told);
    EXPECT_EQ(set_log_channels("perf"), "");
    for (int64_t n : {132 * 64, 132 * 64 + 1, 10000 * 64}) {
      told.clear();
      ASSERT_TRUE(e->run({{"x", ramp(n)}}).ok());
      // Why the slower kernel runs.
      EXPECT_EQ(told.find("67 programs would have to wait for each other, and of all") != std::string::npos,
                n != 132 * 64 && cooperative_blocks > 66)
          << told;
      EXPECT_EQ(gpu.launched.back(), n == 132 * 64 || cooperative_blocks <= 66 ? "waits" : "alone")
          << cooperative_blocks << " " << n;
      EXPECT_EQ(gpu.launches.back().cooperative, n == 132 * 64) << cooperative_blocks << " " << n;
    }
    (void)set_log_channels("");
    set_log_sink(nullptr, nullptr);
  }
  // Only one such grid is in flight at a time, whatever the streams and executors.
  auto following = std::make_shared<Executable>(**loaded);
  std::get<KernelLaunch>(following->steps[0]).alternatives[0].cooperative_blocks = 8;
  options.gpu_context = nullptr;
  auto first = executor(following), second = executor(following);
  const int64_t many = 10000 * 64;
  auto from = gpu.allocate(many * 4), to = gpu.allocate(many * 4), other = gpu.allocate(many * 4);
  auto call = [&](Executor& e, CUdeviceptr result, uintptr_t stream) {
    auto given = {device(result, many)};
    ASSERT_TRUE(e.run_on_device({{"x", device(from, many)}}, given, reinterpret_cast<void*>(stream)).ok());
  };
  gpu.calls.clear();
  call(*first, to, 0x77);
  call(*second, other, 0x77);
  EXPECT_EQ(gpu.calls["cuStreamWaitEvent"], 0) << "the same stream";
  call(*first, to, 0x77);
  call(*second, other, 0x88);
  EXPECT_EQ(gpu.calls["cuStreamWaitEvent"], 2) << "for the executor's own last call, and for the other's kernel";
  ASSERT_TRUE(first->wait().ok() && second->wait().ok());
  auto larger = std::make_shared<Executable>(**loaded); // than the shared memory that a block of this GPU may have
  std::get<KernelLaunch>(larger->steps[0]).alternatives[0].shared_bytes = 300 << 10;
  options.gpu_context = nullptr;
  ASSERT_TRUE(executor(larger)->run({{"x", ramp(64)}}).ok());
  EXPECT_EQ(gpu.launched.back(), "alone");
  gpu.cooperative = 0; // a GPU that cannot launch so
  options.gpu_context = nullptr;
  ASSERT_TRUE(executor(*loaded)->run({{"x", ramp(64)}}).ok());
  EXPECT_EQ(gpu.launched.back(), "alone");
}

TEST_F(OnGpu, StringsStayOnTheHost) {
  auto b = builder();
  auto in = b.input("names", {3}, DType::String), x = b.input("x", {3}), t = b.buffer("t", {3}),
       lengths = b.output("lengths", {3}), upper = b.output("upper", {3}, DType::String),
       same = b.output("same", {3}, DType::String);
  HostStep h;
  h.name = h.op = "measure";
  h.inputs = {in, x};
  h.outputs = {t, upper};
  h.run = [](const std::vector<Tensor>& in, const std::unordered_map<uint64_t, int64_t>&) {
    Tensor n = Tensor::create(DType::F32, {3}).value();
    std::vector<std::string> longer;
    for (int64_t i = 0; i < 3; ++i) {
      const auto& s = in[0].string_values()[static_cast<size_t>(i)];
      n.set_f64(i, static_cast<double>(s.size()) + in[1].get_f64(i));
      longer.push_back(s + "!");
    }
    return Result<std::vector<Tensor>>(std::vector<Tensor>{n, Tensor::strings({3}, longer)});
  };
  b.exe->steps.emplace_back(h);
  kernel(b, "twice", t, lengths, 3);
  b.exe->steps.emplace_back(CopyStep{"copy", in, same});
  auto e = executor(b.done());
  auto r = e->run({{"names", Tensor::strings({3}, {"a", "bcd", ""})}, {"x", ramp(3)}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ(values((*r)[0]), (std::vector<float>{2 * 1 + 3, 2 * 4 + 3, 2 * 2 + 3}));
  EXPECT_EQ((*r)[1].string_values(), (std::vector<std::string>{"a!", "bcd!", "!"}));
  EXPECT_EQ((*r)[2].string_values(), (std::vector<std::string>{"a", "bcd", ""}));
  EXPECT_EQ(gpu.calls["cuMemcpyHtoDAsync"], 1) << "t; x is for the host step alone";
}

TEST_F(OnGpu, StepsMayBeginWhenAllAreSubmitted) {
  options.profile = options.profile_submitted = true;
  auto e = executor(chain());
  RunStats stats;
  for (int round = 1; round <= 2; ++round) {
    ASSERT_TRUE(e->run({{"x", ramp(100)}}, &stats).ok());
    EXPECT_EQ(gpu.calls["cuLaunchHostFunc"], round) << "one gate in front of all steps";
    ASSERT_EQ(stats.steps.size(), 2u);
  }
}

TEST_F(OnGpu, ProfilesHaveEveryStep) {
  options.profile = true;
  auto exe = std::make_shared<Executable>(*chain());
  for (Step& s : exe->steps) std::get<KernelLaunch>(s).bytes = exe->buffers[0].shape[0] * 8;
  auto e = executor(exe);
  RunStats stats;
  double ended = 0;
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(e->run({{"x", ramp(100)}}, &stats).ok());
    ASSERT_EQ(stats.steps.size(), 2u);
    EXPECT_EQ(stats.steps[0].name, "the kernel twice");
    EXPECT_EQ(stats.steps[1].name, "the kernel twice#2");
    EXPECT_EQ(stats.steps[1].step, 1);
    EXPECT_EQ(stats.steps[1].bytes, 800);
    EXPECT_GT(stats.steps[1].blocks, 0);
    EXPECT_GE(stats.begin_ms, ended) << "calls do not overlap";
    // On one clock: submissions in order within the call; a step runs after its submission and after the step before.
    double host = stats.begin_ms, device = 0;
    for (const StepProfile& s : stats.steps) {
      EXPECT_GT(s.ms, 0);
      EXPECT_GE(s.submit_begin_ms, host);
      EXPECT_GE(s.begin_ms, device);
      EXPECT_GE(s.begin_ms, s.submit_begin_ms);
      EXPECT_FALSE(s.on_host);
      host = s.submit_begin_ms + s.submit_ms;
      device = s.begin_ms + s.ms;
    }
    ended = stats.begin_ms + stats.total_ms;
    EXPECT_LE(host, ended);
    std::vector<std::string> phases;
    for (const HostPhase& p : stats.phases) phases.push_back(p.name);
    EXPECT_EQ(phases, (std::vector<std::string>{"bind", "guards", "inputs", "plan", "results"}));
  }
  // Without statistics nobody gets a profile: the call is as fast as any.
  gpu.calls.clear();
  ASSERT_TRUE(e->run({{"x", ramp(100)}}).ok());
  EXPECT_EQ(gpu.calls["cuEventRecord"], 0);
}

} // namespace
} // namespace tessera
