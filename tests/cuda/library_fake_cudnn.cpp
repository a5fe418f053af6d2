// Plans of convolutions with a cuDNN that only takes notes: which graphs are requested, in which order, and what is
// bound to them.
#include "base/temporary_folder.h"
#include "runtime/cache/cache.h"
#include "runtime/cuda/code_object.h"
#include "runtime/cuda/cudnn_attention.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/runtime/build_executable.h"
#include <atomic>
#include <chrono>
#include <thread>

namespace tessera::cuda {
namespace {
using namespace test;
using fake_cudnn::Convolution;
using fake_cudnn::fused;
using fake_cudnn::Machine;
using tessera::test::FakeGpu;

constexpr auto kX = static_cast<int64_t>(ConvRole::X), kW = static_cast<int64_t>(ConvRole::W),
               kY = static_cast<int64_t>(ConvRole::Y), kBias = static_cast<int64_t>(ConvRole::Bias),
               kResidual = static_cast<int64_t>(ConvRole::Residual);

TEST(CudnnPlans, TheEpilogueIsAskedForAsItIsFirst) {
  Machine machine;
  Convolution c;
  c.call.fused.emplace().activation = LibraryEpilogue::Activation::Relu;
  c.call.fused->bias.emplace();
  auto done = fused(machine, c);
  ASSERT_TRUE(done.ok()) << done.error().str();
  EXPECT_TRUE(*done);
  EXPECT_EQ(machine.state.requested, (std::vector<size_t>{3}));
  EXPECT_EQ(machine.state.ids, (std::vector<int64_t>{kX, kW, kY, kBias}));
  EXPECT_EQ(machine.state.runs, 2);
  fused(machine, c).value();
  EXPECT_EQ(machine.state.requested.size(), 1u) << "the same problem is queried once";
}

TEST(CudnnPlans, TheFullFormStandsInForWhatHasNoKernel) {
  Machine machine;
  machine.state.takes = {1, 4}; // bare, and with residual, bias and activation
  Convolution c;
  c.call.fused.emplace().activation = LibraryEpilogue::Activation::Relu;
  auto done = fused(machine, c);
  ASSERT_TRUE(done.ok()) << done.error().str();
  EXPECT_TRUE(*done);
  EXPECT_EQ(machine.state.requested, (std::vector<size_t>{2, 3, 4}));
  ASSERT_EQ(machine.state.ids, (std::vector<int64_t>{kX, kW, kY, kBias, kResidual}));
  EXPECT_EQ(machine.state.data[4], machine.state.data[2]) << "y itself, times 0";
  auto address = reinterpret_cast<uint64_t>(machine.state.data[3]);
  const auto* zeros = machine.state.gpu.at<uint16_t>(address, 16);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(zeros[i], 0);
}

TEST(CudnnPlans, WithoutAnEngineTheKernelFinishesOrThePlanIsRefused) {
  Machine machine;
  machine.state.takes = {1};
  Convolution c;
  c.call.fused.emplace().activation = LibraryEpilogue::Activation::Relu;
  c.can_finish = true;
  auto done = fused(machine, c);
  ASSERT_TRUE(done.ok()) << done.error().str();
  EXPECT_FALSE(*done);
  EXPECT_EQ(machine.state.ids, (std::vector<int64_t>{kX, kW, kY}));
  c.can_finish = false;
  done = fused(machine, c);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(done.error().str().find("Conv_4"), std::string::npos);
}

TEST(CudnnPlans, EnginesAreChosenByTheirNotes) {
  auto planned = [](DType dtype, std::vector<cudnnBackendNumericalNote_t> numerical,
                    std::vector<cudnnBackendBehaviorNote_t> behaviour, size_t* attempts = nullptr) {
    Machine machine;
    machine.state.numerical = std::move(numerical);
    machine.state.behaviour = std::move(behaviour);
    Convolution c;
    for (auto* o : {&c.x, &c.w, &c.y}) *o = filled(dtype, o->view.shape, o->view.strides, 1);
    bool ok = fused(machine, c).ok();
    if (attempts) *attempts = machine.state.requested.size();
    return ok;
  };
  EXPECT_TRUE(planned(DType::F16, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}));
  EXPECT_FALSE(planned(DType::F32, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {})) << "TF32";
  EXPECT_TRUE(planned(DType::F32, {}, {}));
  EXPECT_FALSE(planned(DType::F16, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}));
  // One that has to be compiled is taken when there is no other.
  size_t attempts = 0;
  EXPECT_TRUE(planned(DType::F16, {}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, &attempts));
  EXPECT_EQ(attempts, 2u);
}

// ---- attention: by the library where it takes it, by the steps behind it where not and as long as its plan is made

constexpr size_t kOperations = 10; // two products, and between them scale, softmax and its statistics

// y = attention of x with itself, [s, 8] in f16, or in two steps by way of t. `known`: s, where compiling knows it.
std::shared_ptr<const Executable> attention_or_steps(std::optional<int64_t> known = std::nullopt) {
  tessera::test::Builder b;
  b.exe->target = "cuda sm_90";
  auto s = known ? SymExpr(*known) : b.symbol("s");
  auto x = b.input("x", {s, 8}, DType::F16), y = b.output("y", {s, 8}, DType::F16);
  auto t = b.buffer("t", {s, 8}, BufferInfo::Kind::Temporary, DType::F16);
  auto view = [&](BufferId id) { return StridedOperand{id, {s, 8}, {8, 1}, 0}; };
  b.exe->steps.emplace_back(LibraryStep{"attention", FusedAttentionCall{view(x), view(x), view(x), view(y), 0.5}, 2});
  for (auto [from, to] : {std::pair{x, t}, std::pair{t, y}}) {
    auto k = tessera::test::Builder::launch("step", nullptr, {from}, {to}, {s}, 1);
    k.threads = 32;
    k.object = static_cast<int>(b.exe->objects.size());
    CodeObject o;
    o.symbol = "step";
    o.ptx_arch = "sm_90";
    o.ptx = "// step";
    b.exe->objects.push_back(encode(o));
    b.exe->steps.emplace_back(std::move(k));
  }
  return b.done();
}

struct AttentionRun {
  Machine machine;
  std::unique_ptr<Executor> executor;
  explicit AttentionRun(bool wait, std::set<size_t> takes = {kOperations}, std::optional<int64_t> known = std::nullopt,
                        const std::shared_ptr<Cache>& cache = nullptr)
      : machine(cache) {
    machine.state.takes = std::move(takes);
    machine.state.gpu.kernel("step", 4, [](const FakeGpu::Launch&) { return CUDA_SUCCESS; });
    ExecutorOptions options;
    options.pool = ThreadPool::create(1);
    options.wait_for_plans = wait;
    options.gpu_context = machine.gpu->context().shared_from_this();
    options.cache = cache;
    auto made = Executor::create({attention_or_steps(known)}, options);
    EXPECT_TRUE(made.ok()) << made.error().str();
    executor = std::move(*made);
  }
  // Launches of steps, and runs of the library, in one call.
  std::pair<int, int> call(int64_t size) {
    machine.state.gpu.calls.clear();
    int before = machine.state.runs;
    RunStats stats;
    auto r = executor->run({{"x", Tensor::create(DType::F16, {size, 8}, true).value()}}, &stats);
    EXPECT_TRUE(r.ok()) << r.error().str();
    arena = stats.arena_bytes;
    return {machine.state.gpu.calls["cuLaunchKernel"], machine.state.runs - before};
  }
  // The same for a call that returns before its work is done.
  std::pair<int, int> call_on_device(int64_t size) {
    machine.state.gpu.calls.clear();
    int before = machine.state.runs;
    const uint64_t x = machine.state.gpu.allocate(size * 16), y = machine.state.gpu.allocate(size * 16);
    const auto tensor = [&](uint64_t at) { return DeviceTensor{DType::F16, {size, 8}, reinterpret_cast<void*>(at)}; };
    const DeviceTensor out = tensor(y);
    auto s = executor->run_on_device({{"x", tensor(x)}}, std::span(&out, 1), nullptr);
    EXPECT_TRUE(s.ok()) << s.error().str();
    Context& context = machine.gpu->context();
    const Context::Current current(context);
    for (const uint64_t at : {x, y}) EXPECT_EQ(context.driver().cuMemFree(at), CUDA_SUCCESS);
    return {machine.state.gpu.calls["cuLaunchKernel"], machine.state.runs - before};
  }
  int64_t arena = 0;
};

TEST(CudnnAttention, SizesThatCompilingKnowsAreDecidedWhenTheModelIsOpened) {
  {
    AttentionRun run(false, {kOperations}, 5);
    for (int call = 0; call < 3; ++call) EXPECT_EQ(run.call(5), std::pair(0, 1));
    EXPECT_EQ(run.machine.state.requested, (std::vector<size_t>{kOperations}));
  }
  {
    AttentionRun refused(false, {}, 5);
    for (int call = 0; call < 3; ++call) EXPECT_EQ(refused.call(5), std::pair(2, 0));
  }
  AttentionRun empty(false, {kOperations}, 0);
  EXPECT_EQ(empty.call(0), std::pair(0, 0));
  EXPECT_TRUE(empty.machine.state.requested.empty());
}

TEST(CudnnAttention, AModelThatIsNotRunWaitsForItsPlan) {
  AttentionRun run(false, {kOperations}, 5);
  run.executor.reset();
  const size_t requested = run.machine.state.requested.size();
  auto engines = AttentionEngines::of(run.machine.gpu->context());
  ASSERT_TRUE(engines.ok());
  engines->reset();
  EXPECT_EQ(run.machine.state.requested.size(), requested);
}

// Calls whose time nobody measures: the second shape's plan comes, too, although the first one took long.
TEST(CudnnAttention, PlansComeAfterManyCallsOnTheDevice) {
  static decltype(&::cudnnBackendFinalize) finalize;
  AttentionRun run(false);
  finalize = run.machine.dnn->cudnnBackendFinalize;
  run.machine.dnn->cudnnBackendFinalize = [](cudnnBackendDescriptor_t d) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return finalize(d);
  };
  for (int64_t size : {5, 6, 7}) {
    for (int call = 0; call < 20; ++call) run.call_on_device(size);
    ASSERT_TRUE(run.executor->wait().ok());
    EXPECT_EQ(run.call_on_device(size), std::pair(0, 1)) << size;
  }
  EXPECT_EQ(run.machine.state.requested.size(), 3u);
}

TEST(CudnnAttention, ALaterProcessTakesTheEngineThatWasChosen) {
  const auto folder = TemporaryFolder::create("tessera-attention").value();
  std::vector<std::string> plans;
  for (int process = 0; process < 2; ++process) {
    AttentionRun run(false, {kOperations}, 5, std::make_shared<Cache>(folder.path(), true));
    if (process == 1) run.machine.state.engine = 8; // what the heuristics would propose by now
    EXPECT_EQ(run.call(5), std::pair(0, 1));
    EXPECT_EQ(run.machine.state.heuristics, process == 0 ? 1 : 0);
    plans.push_back(run.machine.state.plans.back());
  }
  EXPECT_EQ(plans[0], plans[1]);
}

TEST(CudnnAttention, StepsUntilThePlanIsMade) {
  AttentionRun run(false);
  for (int64_t size : {4, 5, 6}) EXPECT_EQ(run.call(size), std::pair(2, 0));
  ASSERT_TRUE(run.executor->wait().ok());
  EXPECT_TRUE(run.machine.state.requested.empty()) << "sizes that came once";
  auto [launched, ran] = run.call(5);
  EXPECT_EQ(launched + 2 * ran, 2) << "one or the other";
  ASSERT_TRUE(run.executor->wait().ok());
  EXPECT_EQ(run.call(5), std::pair(0, 1));
  EXPECT_EQ(run.arena, 1024) << "the workspace, and no room for what only the steps use";
  EXPECT_EQ(run.machine.state.requested, (std::vector<size_t>{kOperations}));
  EXPECT_EQ(run.call(5), std::pair(0, 1));
  EXPECT_EQ(run.machine.state.requested.size(), 1u);
}

TEST(CudnnAttention, AnExecutorThatGoesLeavesNoPlanBeingMade) {
  AttentionRun run(false);
  for (int call : {1, 2})
    for (int64_t size = 1; size < 20; ++size) EXPECT_EQ(run.call(size).first % 2, 0) << call;
  run.executor.reset();
  auto engines = AttentionEngines::of(run.machine.gpu->context());
  ASSERT_TRUE(engines.ok());
  (*engines)->wait(); // nothing is left to wait for
  size_t requested = run.machine.state.requested.size();
  EXPECT_LE(requested, 19u);
  engines->reset();
  EXPECT_EQ(run.machine.state.requested.size(), requested);
}

// A process that ends then must not do so while the library loads its files.
TEST(CudnnAttention, AnExecutorThatGoesWaitsForTheStartOfTheThread) {
  static decltype(&::cudnnCreate) create;
  static std::atomic<int> started, made;
  started = made = 0;
  AttentionRun run(false);
  create = run.machine.dnn->cudnnCreate;
  run.machine.dnn->cudnnCreate = [](cudnnHandle_t* handle) {
    ++started;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto status = create(handle);
    ++made;
    return status;
  };
  for (int call = 0; call < 3; ++call) run.call(5);
  run.executor.reset();
  EXPECT_EQ(started, 1);
  EXPECT_EQ(made, 1);
}

TEST(CudnnAttention, APlanIsWaitedForWhereThatIsWanted) {
  AttentionRun run(true);
  EXPECT_EQ(run.call(5), std::pair(0, 1));
  EXPECT_EQ(run.call(6), std::pair(0, 1));
  EXPECT_EQ(run.call(0), std::pair(0, 0)) << "no results, nothing to do";
  EXPECT_EQ(run.machine.state.ids, (std::vector<int64_t>{1, 2, 3, 4, 6}));
}

TEST(CudnnAttention, WhatTheLibraryRefusesIsDoneInSteps) {
  AttentionRun run(true, {});
  EXPECT_EQ(run.call(5), std::pair(2, 0));
  EXPECT_EQ(run.call(5), std::pair(2, 0));
  EXPECT_GE(run.machine.state.requested.size(), 1u);
}

} // namespace
} // namespace tessera::cuda
