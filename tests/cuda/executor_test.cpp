// The executor on the fake GPU: copies, arena, errors at every call, alternatives, calls on the device.
#include "fake_driver.h"
#include "runtime/cuda/code_object.h"
#include "tests/runtime/build_executable.h"
#include <filesystem>
#include <unistd.h>

namespace tessera {
namespace {
using namespace test;

// Executables whose kernels the fake GPU knows, and executors of them.
class OnGpu : public ::testing::Test {
protected:
  OnGpu() {
    // y[i] = 2 x[i] + n for i in [0, n), 64 elements a block.
    gpu.kernel("twice", 4, [this](const FakeGpu::Launch& l) {
      auto n = static_cast<int64_t>(l.args[2]);
      const auto* x = gpu.at<float>(l.args[0], n);
      auto* y = gpu.at<float>(l.args[1], n);
      for (int64_t i = 0; i < n && i < l.grid * 64; ++i) y[i] = 2 * x[i] + static_cast<float>(n);
      return CUDA_SUCCESS;
    });
    // The same, and a violation (site 1) for a negative element.
    gpu.kernel("checked", 4, [this](const FakeGpu::Launch& l) {
      auto n = static_cast<int64_t>(l.args[2]);
      const auto* x = gpu.at<float>(l.args[0], n);
      auto* y = gpu.at<float>(l.args[1], n);
      for (int64_t i = 0; i < n; ++i) {
        y[i] = 2 * x[i] + static_cast<float>(n);
        if (x[i] < 0) *gpu.at<int32_t>(l.args[3], 1) = 2;
      }
      return CUDA_SUCCESS;
    });
    gpu.kernel("broken", 4, [](const FakeGpu::Launch&) { return CUDA_ERROR_ILLEGAL_ADDRESS; });
    options.pool = ThreadPool::create(2);
    options.poison = true;
  }

  std::vector<char> object(const std::string& symbol) {
    cuda::CodeObject o;
    o.symbol = symbol;
    o.ptx_arch = "sm_90";
    o.ptx = "// " + symbol;
    return cuda::encode(o);
  }
  KernelLaunch launch(Builder& b, const std::string& symbol, BufferId in, BufferId out, SymExpr n) {
    auto k = Builder::launch(symbol, nullptr, {in}, {out}, {n}, ceildiv(n, 64));
    k.name = "the kernel " + symbol;
    k.threads = 64;
    k.object = static_cast<int>(b.exe->objects.size());
    b.exe->objects.push_back(object(symbol));
    if (symbol == "checked") k.report_sites = {"never", "a negative element"};
    return k;
  }
  void kernel(Builder& b, const std::string& symbol, BufferId in, BufferId out, SymExpr n) {
    b.exe->steps.emplace_back(launch(b, symbol, in, out, n));
  }
  Builder builder() {
    Builder b;
    b.exe->target = "cuda sm_90";
    return b;
  }
  // x -> t -> y, each by `symbol`: y = 4 x + 3 n.
  std::shared_ptr<const Executable> chain(const std::string& first = "twice", const std::string& second = "twice") {
    auto b = builder();
    auto s = b.symbol("s");
    auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
    kernel(b, first, x, t, s);
    kernel(b, second, t, y, s);
    return b.done();
  }
  Result<std::unique_ptr<Executor>> create(std::vector<std::shared_ptr<const Executable>> variants) {
    if (!options.gpu_context) options.gpu_context = gpu.context();
    return Executor::create(std::move(variants), options);
  }
  std::unique_ptr<Executor> executor(std::shared_ptr<const Executable> exe) {
    auto e = create({std::move(exe)});
    EXPECT_TRUE(e.ok()) << e.error().str();
    return std::move(*e);
  }
  static Tensor ramp(int64_t n, float from = 0) {
    Tensor t = Tensor::create(DType::F32, {n}).value();
    for (auto& v : t.mutable_as<float>()) v = from++;
    return t;
  }
  static std::vector<float> values(const Tensor& t) { return {t.as<float>().begin(), t.as<float>().end()}; }
  static std::vector<float> expected(const Tensor& x) {
    auto v = values(x);
    for (auto& e : v) e = 4 * e + 3 * static_cast<float>(v.size());
    return v;
  }
  static std::vector<float> at_address(uint64_t address, int64_t n) {
    const auto* p = reinterpret_cast<const float*>(address);
    return {p, p + n};
  }
  static DeviceTensor device(uint64_t address, int64_t n) {
    return {DType::F32, {n}, reinterpret_cast<void*>(address)};
  }

  FakeGpu gpu; // destroyed last
  ExecutorOptions options;
};

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

TEST_F(OnGpu, SizesThatAHostStepDefines) {
  auto b = builder();
  auto s = b.symbol("s"), k = b.symbol("k");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), kept = b.buffer("kept", {k}), u = b.buffer("u", {k}),
       y = b.output("y", {k}), whole = b.output("whole", {s});
  kernel(b, "twice", x, t, s);
  HostStep h;
  h.name = h.op = "keep large";
  h.inputs = {t};
  h.outputs = {kept};
  h.defines = {{k, 0, 0}};
  h.run = [](const std::vector<Tensor>& in, const std::unordered_map<uint64_t, int64_t>&) {
    std::vector<double> large;
    for (int64_t i = 0; i < in[0].count(); ++i)
      if (in[0].get_f64(i) > 20) large.push_back(in[0].get_f64(i));
    return Result<std::vector<Tensor>>(
        std::vector<Tensor>{Tensor::of<double>(DType::F32, {static_cast<int64_t>(large.size())}, large)});
  };
  b.exe->steps.emplace_back(h);
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

// Kernels whose programs meet get memory of the launch, and counters that are clear at the first launch and never
// touched by the executor again.
TEST_F(OnGpu, ProgramsThatMeetHaveMemoryOfTheirOwn) {
  std::vector<uint64_t> counters, workspaces;
  gpu.kernel("meets", 7, [&](const FakeGpu::Launch& l) {
    auto n = static_cast<int64_t>(l.args[5]);
    counters.push_back(l.args[4]);
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
    std::memcpy(gpu.at<float>(l.args[1], n), gpu.at<float>(l.args[0], n), static_cast<size_t>(n) * 4);
    return CUDA_SUCCESS;
  });
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
  auto meets = launch(b, "meets", x, t, s);
  meets.workspaces = {{DType::I64, s}, {DType::F32, 3}};
  meets.counters = 3;
  b.exe->steps.emplace_back(meets);
  meets = launch(b, "meets", t, y, s);
  meets.workspaces = {{DType::I64, s}, {DType::F32, 3}};
  meets.counters = 3;
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
  // A failure to make or clear them is told, and the next call works.
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
  waits.team = waits.grid;
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
  // Teams of neighbours may follow each other, where there is room for two of them.
  for (int64_t team : {1, 66, 67}) {
    auto teams = std::make_shared<Executable>(**loaded);
    std::get<KernelLaunch>(teams->steps[0]).alternatives[0].team = team;
    gpu.resident_blocks = 1;
    options.gpu_context = nullptr;
    auto e = executor(teams);
    for (int64_t n : {132 * 64, 132 * 64 + 1, 10000 * 64}) {
      ASSERT_TRUE(e->run({{"x", ramp(n)}}).ok());
      EXPECT_EQ(gpu.launched.back(), n == 132 * 64 || team <= 66 ? "waits" : "alone") << team << " " << n;
      EXPECT_EQ(gpu.launches.back().cooperative, n == 132 * 64) << team << " " << n;
    }
  }
  // Of such grids one is under way at a time, whatever the streams and executors.
  auto following = std::make_shared<Executable>(**loaded);
  std::get<KernelLaunch>(following->steps[0]).alternatives[0].team = 8;
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
  options.memory_limit = 1 << 20;
  auto e = executor(chain());
  EXPECT_TRUE(e->run({{"x", ramp(1000)}}).ok());
  auto r = e->run({{"x", ramp(1 << 20)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message, "this shape needs 4194304 bytes for intermediate results, the limit is 1048576");
  EXPECT_TRUE(e->run({{"x", ramp(1000)}}).ok());
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
        // Freeing is no reason to fail; memory that is not there is asked for a second time.
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
    EXPECT_EQ(r.error().message, "a negative element");
    EXPECT_EQ(r.error().notes, std::vector<std::string>{"found by kernel 'the kernel checked'"});
    EXPECT_TRUE(e->run({{"x", ramp(4)}}).ok()) << "it is not told again";
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

TEST_F(OnGpu, ProfilesHaveEveryStep) {
  options.profile = true;
  auto e = executor(chain());
  RunStats stats;
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(e->run({{"x", ramp(100)}}, &stats).ok());
    ASSERT_EQ(stats.steps.size(), 2u);
    EXPECT_EQ(stats.steps[1].name, "the kernel twice");
    EXPECT_EQ(stats.steps[1].bytes, 800);
    EXPECT_GT(stats.steps[0].ms, 0);
  }
}

// ---- calls on the device
TEST_F(OnGpu, OnTheDeviceNothingIsCopiedAndNobodyWaits) {
  options.poison = false;
  auto e = executor(chain());
  auto n = int64_t{100};
  auto x = gpu.allocate(400), y = gpu.allocate(400);
  auto in = ramp(n);
  std::memcpy(reinterpret_cast<void*>(x), in.data(), 400);
  auto* stream = reinterpret_cast<void*>(uintptr_t{0x77});
  auto given = {device(y, n)};
  ASSERT_TRUE(e->run_on_device({{"x", device(x, n)}}, given, stream).ok());
  gpu.run_all();
  gpu.calls.clear();
  std::memset(reinterpret_cast<void*>(y), 0, 400);
  ASSERT_TRUE(e->run_on_device({{"x", device(x, n)}}, given, stream).ok());
  EXPECT_EQ(gpu.calls["cuLaunchKernel"], 2);
  EXPECT_EQ(gpu.calls["cuStreamSynchronize"] + gpu.calls["cuEventSynchronize"], 0);
  EXPECT_EQ(gpu.calls["cuMemcpyHtoDAsync"] + gpu.calls["cuMemcpyDtoDAsync"] + gpu.calls["cuMemcpyDtoHAsync"], 0);
  EXPECT_EQ(gpu.calls["cuStreamWaitEvent"], 0) << "the same stream";
  EXPECT_EQ(at_address(y, 1)[0], 0) << "it has not run yet";
  ASSERT_TRUE(e->wait().ok());
  EXPECT_EQ(at_address(y, n), expected(in));
}

TEST_F(OnGpu, MisalignedMemoryIsCopied) {
  auto e = executor(chain());
  auto n = int64_t{50};
  auto x = gpu.allocate(1000) + 4, y = gpu.allocate(1000) + 12;
  auto in = ramp(n);
  std::memcpy(reinterpret_cast<void*>(x), in.data(), 200);
  auto given = {device(y, n)};
  ASSERT_TRUE(e->run_on_device({{"x", device(x, n)}}, given, nullptr).ok());
  ASSERT_TRUE(e->wait().ok());
  EXPECT_EQ(at_address(y, n), expected(in));
  EXPECT_EQ(gpu.calls["cuMemcpyDtoDAsync"], 2);
  for (const auto& l : gpu.launches) EXPECT_TRUE(l.args[0] % 16 == 0 && l.args[1] % 16 == 0);
}

TEST_F(OnGpu, CallsOnSeveralStreamsComeOneAfterTheOther) {
  auto e = executor(chain());
  auto n = int64_t{64};
  std::vector<uint64_t> xs, ys;
  for (int i = 0; i < 6; ++i) {
    xs.push_back(gpu.allocate(4096));
    ys.push_back(gpu.allocate(4096));
    auto in = ramp(n, static_cast<float>(i));
    std::memcpy(reinterpret_cast<void*>(xs.back()), in.data(), 256);
    auto given = {device(ys.back(), n)};
    auto* stream = reinterpret_cast<void*>(uintptr_t{0x50} + static_cast<uintptr_t>(i % 3));
    ASSERT_TRUE(e->run_on_device({{"x", device(xs.back(), n)}}, given, stream).ok());
  }
  // The last stream alone is waited for, then tensors from the host use the same arena.
  auto r = e->run({{"x", ramp(n, 9)}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ(values((*r)[0]), expected(ramp(n, 9)));
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(at_address(ys[static_cast<size_t>(i)], n), expected(ramp(n, static_cast<float>(i)))) << i;
}

TEST_F(OnGpu, ViolationsOnTheDeviceAreToldLater) {
  auto e = executor(chain("checked", "twice"));
  auto n = int64_t{8};
  auto x = gpu.allocate(400), y = gpu.allocate(400);
  auto given = {device(y, n)};
  auto call = [&](float from) {
    auto in = ramp(n, from);
    std::memcpy(reinterpret_cast<void*>(x), in.data(), 32);
    return e->run_on_device({{"x", device(x, n)}}, given, nullptr);
  };
  ASSERT_TRUE(call(-3).ok());
  auto told = e->wait();
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.error().code, ErrorCode::BadInput);
  EXPECT_EQ(told.error().message, "a negative element");
  EXPECT_TRUE(e->wait().ok()) << "once";
  ASSERT_TRUE(call(1).ok());
  ASSERT_TRUE(e->wait().ok());
  ASSERT_TRUE(call(-3).ok());
  gpu.run_all();
  auto next = call(1);
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().message, "a negative element");
  ASSERT_TRUE(call(1).ok());
  ASSERT_TRUE(e->wait().ok());
  EXPECT_EQ(at_address(y, n), expected(ramp(n, 1)));
}

TEST_F(OnGpu, WhatIsGivenOnTheDeviceIsChecked) {
  auto e = executor(chain());
  auto x = gpu.allocate(400), y = gpu.allocate(400);
  auto call = [&](const DeviceTensor& in, const DeviceTensor& out) {
    auto given = {out};
    auto s = e->run_on_device({{"x", in}}, given, nullptr);
    return s.ok() ? std::string() : s.error().message;
  };
  EXPECT_EQ(call(device(x, 100), device(y, 100)), "");
  EXPECT_NE(call(device(x, 100), device(y, 99)), "");
  EXPECT_NE(call(device(0, 100), device(y, 100)), "");
  EXPECT_NE(call(device(x, 50), device(x + 100, 50)).find("overlaps an input"), std::string::npos);
  EXPECT_NE(call({DType::I64, {100}, reinterpret_cast<void*>(x)}, device(y, 100)), "");
  auto status = e->run_on_device({{"x", device(x, 100)}}, {}, nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::BadInput);
  ASSERT_TRUE(e->wait().ok());

  Builder b;
  auto hx = b.input("x", {4}), hy = b.output("y", {4});
  b.kernel("twice", twice_plus, {hx}, {hy}, {SymExpr(1)}, 4);
  auto host = Executor::create({b.done()}).value();
  auto given = {device(y, 4)};
  status = host->run_on_device({{"x", device(x, 4)}}, given, nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::Usage);
  EXPECT_TRUE(host->wait().ok());
}

// ---- variants, files
TEST_F(OnGpu, VariantsOfOneExecutorAreForOneDevice) {
  Builder b;
  auto x = b.input("x", {4}), y = b.output("y", {4});
  b.kernel("twice", twice_plus, {x}, {y}, {SymExpr(1)}, 4);
  auto e = create({chain(), b.done()});
  ASSERT_FALSE(e.ok());
  EXPECT_EQ(e.error().code, ErrorCode::Usage);
}

TEST_F(OnGpu, AssumedGuardsCompileAnotherVariantThatSharesTheArena) {
  int asked = 0;
  auto b = builder();
  auto s = b.symbol("s");
  b.exe->env->add_guard({sym_eq(mod(s, 8), 0), GuardClass::Assumed, "wide accesses", {}});
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
  kernel(b, "twice", x, t, s);
  kernel(b, "twice", t, y, s);
  options.recompile = [&](const std::map<std::string, Dims>&,
                          const GuardMiss&) -> Result<std::shared_ptr<const Executable>> {
    ++asked;
    return chain();
  };
  auto e = executor(b.done());
  for (int64_t n : {8, 9, 16, 11}) {
    auto r = e->run({{"x", ramp(n)}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    EXPECT_EQ(values((*r)[0]), expected(ramp(n)));
  }
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(e->variants().size(), 2u);
}

TEST_F(OnGpu, FilesKeepEverything) {
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), y = b.output("y", {s}), m = b.input("m", {s, 8}),
       w = b.constant("w", random_tensor({8, 8}, 1)), bias = b.constant("bias", ramp(8)), p = b.output("p", {s, 8});
  auto k = launch(b, "twice", x, y, s), wide = launch(b, "twice", x, y, s);
  wide.threads = 128;
  wide.shared_bytes = 50 << 10;
  wide.conditions = {{s, 8, 16, INT64_MAX}};
  k.alternatives = {wide};
  b.exe->steps.emplace_back(k);
  MatmulCall call{b.dense(m), b.dense(w), b.dense(p), std::nullopt};
  LibraryEpilogue fused;
  fused.alpha = 0.1;
  fused.bias = StridedOperand{bias, {s, 8}, {0, 1}, 0};
  fused.bias_dim = 1;
  fused.activation = LibraryEpilogue::Activation::Clip;
  fused.clip_low = 0;
  fused.clip_high = std::numeric_limits<double>::infinity();
  call.fused = fused;
  b.exe->steps.emplace_back(LibraryStep{"product", call});
  auto exe = b.done();
  auto path = std::filesystem::temp_directory_path() / ("tessera_gpu_" + std::to_string(::getpid()) + ".exe");
  ASSERT_TRUE(save_executable(*exe, path.string(), true).ok());
  // A link function is for the host's machine code: it is not asked.
  auto loaded = load_executable(path.string(), [](const Executable&) -> Result<LinkedCode> {
    return Diagnostic(ErrorCode::Internal, "asked to link");
  });
  ASSERT_TRUE(loaded.ok()) << loaded.error().str();
  const auto& got = std::get<KernelLaunch>((*loaded)->steps[0]);
  EXPECT_EQ(got.threads, 64);
  ASSERT_EQ(got.alternatives.size(), 1u);
  EXPECT_EQ(got.alternatives[0].threads, 128);
  EXPECT_EQ(got.alternatives[0].shared_bytes, 50 << 10);
  ASSERT_EQ(got.alternatives[0].conditions.size(), 1u);
  EXPECT_EQ(got.alternatives[0].conditions[0].multiple_of, 8);
  EXPECT_EQ(got.alternatives[0].conditions[0].min, 16);
  EXPECT_EQ(got.alternatives[0].conditions[0].max, INT64_MAX);
  const auto& epilogue = std::get<MatmulCall>(std::get<LibraryStep>((*loaded)->steps[1]).call).fused;
  ASSERT_TRUE(epilogue.has_value());
  EXPECT_EQ(epilogue->alpha, 0.1);
  EXPECT_EQ(epilogue->clip_high, std::numeric_limits<double>::infinity());
  EXPECT_EQ(epilogue->activation, LibraryEpilogue::Activation::Clip);
  ASSERT_TRUE(epilogue->bias.has_value());
  EXPECT_EQ(epilogue->bias_dim, 1);
  EXPECT_FALSE(epilogue->residual.has_value());
  EXPECT_EQ((*loaded)->objects, exe->objects);
  std::filesystem::remove(path);
}

TEST_F(OnGpu, ExecutablesThatContradictThemselvesAreRefused) {
  auto refused = [&](const std::function<void(KernelLaunch&)>& damage) {
    auto exe = std::make_shared<Executable>(*chain());
    auto& k = std::get<KernelLaunch>(exe->steps[0]);
    damage(k);
    auto e = create({exe});
    EXPECT_FALSE(e.ok());
    return e.ok() ? std::string() : e.error().message;
  };
  EXPECT_NE(refused([](KernelLaunch& k) { k.threads = 0; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) { k.threads = 2000; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) { k.object = -1; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) { k.conditions = {{SymExpr(1), 1, 0, 1}}; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) { k.team = 1; }).find("there is no other kernel"), std::string::npos);
  EXPECT_NE(refused([](KernelLaunch& k) { k.workspaces = {{DType::String, 1}}; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) {
              k.alternatives = {k};
              k.alternatives[0].buffers[0] = k.buffers[1];
            }).find("other buffers"),
            std::string::npos);
  EXPECT_NE(refused([](KernelLaunch& k) {
              auto a = k;
              a.alternatives = {k};
              k.alternatives = {a};
            }),
            "");
  auto odd = std::make_shared<Executable>(*chain());
  odd->target = "cuda gfx942";
  auto refused_target = create({odd});
  ASSERT_FALSE(refused_target.ok());
  EXPECT_EQ(refused_target.error().message,
            "the executable was made for 'cuda gfx942': 'gfx942' is no GPU architecture");
  Builder b;
  auto x = b.input("x", {4}), y = b.output("y", {4});
  b.exe->steps.emplace_back(launch(b, "twice", x, y, 4));
  auto host = Executor::create({b.done()});
  ASSERT_FALSE(host.ok());
  EXPECT_NE(host.error().message.find("it is for a GPU, the executable is not"), std::string::npos);
}

TEST(WithoutGpu, AnExecutorSaysWhatIsMissing) {
  Builder b;
  b.exe->target = "cuda sm_90";
  auto e = Executor::create({b.done()});
  if (e.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(e.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(e.error().message.find("NVIDIA driver"), std::string::npos);
}

} // namespace
} // namespace tessera
