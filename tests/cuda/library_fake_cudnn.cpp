// Plans of convolutions with a cuDNN that only takes notes: which graphs it is asked for, in which order, and what is
// bound to them.
#include "fake_driver.h"
#include "runtime/cuda/code_object.h"
#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/cudnn_attention.h"
#include "tests/cuda/library_device.h"
#include "tests/runtime/build_executable.h"
#include <cstring>
#include <set>

namespace tessera::cuda {
namespace {
using namespace test;
using tessera::test::FakeGpu;

struct Fake {
  cudnnBackendDescriptorType_t type;
  std::map<int, std::vector<std::byte>> attributes;
};
Fake* of(cudnnBackendDescriptor_t d) { return reinterpret_cast<Fake*>(d); }

struct Library {
  FakeGpu gpu;
  std::set<size_t> takes = {1, 2, 3, 4};              // graphs of so many operations
  std::vector<cudnnBackendNumericalNote_t> numerical; // of the only engine
  std::vector<cudnnBackendBehaviorNote_t> behaviour;
  std::vector<size_t> asked; // operations of the graphs, in order
  std::vector<int64_t> ids;  // of the last run
  std::vector<void*> data;
  int live = 0, runs = 0;
}* library = nullptr;

template <class T>
void list(const std::vector<T>& from, int64_t* count, void* to) {
  *count = static_cast<int64_t>(from.size());
  std::memcpy(to, from.data(), from.size() * sizeof(T));
}

struct Machine {
  Library state;
  std::shared_ptr<Cudnn> dnn = std::make_shared<Cudnn>();
  std::unique_ptr<Gpu> gpu;

  Machine() {
    library = &state;
    Cudnn& t = *dnn;
    t.version = 91900;
    t.cudnnGetErrorString = [](cudnnStatus_t) { return "as the test wants it"; };
    t.cudnnSetStream = [](cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; };
    t.cudnnBackendCreateDescriptor = [](cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* out) {
      ++library->live;
      *out = reinterpret_cast<cudnnBackendDescriptor_t>(new Fake{type, {}});
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendDestroyDescriptor = [](cudnnBackendDescriptor_t d) {
      --library->live;
      delete of(d);
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendSetAttribute = [](cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t type, int64_t count, const void* values) {
      size_t size = type == CUDNN_TYPE_BOOLEAN ? 1
                    : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_DOUBLE || type == CUDNN_TYPE_VOID_PTR ||
                            type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_BACKEND_DESCRIPTOR
                        ? 8
                        : 4;
      auto& bytes = of(d)->attributes[name];
      bytes.resize(size * static_cast<size_t>(count));
      std::memcpy(bytes.data(), values, bytes.size());
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendFinalize = [](cudnnBackendDescriptor_t d) {
      if (of(d)->type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
      size_t operations = of(d)->attributes[CUDNN_ATTR_OPERATIONGRAPH_OPS].size() / sizeof(void*);
      library->asked.push_back(operations);
      return library->takes.contains(operations) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    };
    t.cudnnBackendGetAttribute = [](cudnnBackendDescriptor_t, cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t, int64_t, int64_t* count, void* values) {
      *count = 1;
      if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) list(library->numerical, count, values);
      if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) list(library->behaviour, count, values);
      if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) *static_cast<int64_t*>(values) = 1000;
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendExecute = [](cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t pack) {
      ++library->runs;
      auto& ids = of(pack)->attributes[CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS];
      auto& data = of(pack)->attributes[CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS];
      library->ids.resize(ids.size() / sizeof(int64_t));
      std::memcpy(library->ids.data(), ids.data(), ids.size());
      library->data.resize(data.size() / sizeof(void*));
      std::memcpy(library->data.data(), data.data(), data.size());
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnCreate = [](cudnnHandle_t* handle) {
      *handle = reinterpret_cast<cudnnHandle_t>(library);
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnDestroy = [](cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; };
    auto context = state.gpu.context();
    auto attached = context->attachment(
        "cuDNN", [&](Context&) -> Result<std::shared_ptr<void>> { return std::shared_ptr<void>(dnn); });
    EXPECT_TRUE(attached.ok());
    std::string why;
    gpu = Gpu::of(context, why);
    EXPECT_NE(gpu, nullptr) << why;
  }
  ~Machine() {
    dnn.reset();
    gpu.reset(); // the context, and with it the library
    EXPECT_EQ(state.live, 0) << "descriptors are left";
    EXPECT_EQ(state.gpu.live_bytes(), 0) << "device memory is left";
    library = nullptr;
  }
};

struct Convolution {
  DeviceOperand x = filled(DType::F16, {2, 8, 5, 5}, channels_last({2, 8, 5, 5}), 1),
                w = filled(DType::F16, {16, 8, 3, 3}, channels_last({16, 8, 3, 3}), 2),
                y = filled(DType::F16, {2, 16, 5, 5}, channels_last({2, 16, 5, 5}), 3),
                bias = filled(DType::F16, {2, 16, 5, 5}, {0, 1, 0, 0}, 4);
  ConvCall call;
  bool can_finish = false;
  Convolution() { call.strides = call.pads_begin = call.pads_end = call.dilations = {1, 1}; }
};

// Plans and runs; the roles bound at the last run come back through the library's notes.
Result<bool> fused(Machine& machine, Convolution c) {
  std::vector<DeviceOperand*> operands = {&c.x, &c.w, &c.y};
  if (c.call.fused && c.call.fused->bias) operands.push_back(&c.bias);
  std::vector<Operand> views;
  for (size_t i = 0; i < operands.size(); ++i) {
    operands[i]->view.buffer = static_cast<BufferId>(i);
    views.push_back(operands[i]->view);
  }
  Context::Current current(machine.gpu->context());
  TESSERA_ASSIGN(auto plan, plan_cuda_conv({machine.gpu->context(), "Conv_4", c.can_finish}, c.call, views));
  EXPECT_EQ(plan->workspace_bytes, 1000);
  TESSERA_TRY(machine.gpu->run(*plan, operands, 2));
  return plan->epilogue_done;
}

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
  EXPECT_EQ(machine.state.asked, (std::vector<size_t>{3}));
  EXPECT_EQ(machine.state.ids, (std::vector<int64_t>{kX, kW, kY, kBias}));
  EXPECT_EQ(machine.state.runs, 2);
  fused(machine, c).value();
  EXPECT_EQ(machine.state.asked.size(), 1u) << "the same problem is asked once";
}

TEST(CudnnPlans, TheFullFormStandsInForWhatHasNoKernel) {
  Machine machine;
  machine.state.takes = {1, 4}; // bare, and with residual, bias and activation
  Convolution c;
  c.call.fused.emplace().activation = LibraryEpilogue::Activation::Relu;
  auto done = fused(machine, c);
  ASSERT_TRUE(done.ok()) << done.error().str();
  EXPECT_TRUE(*done);
  EXPECT_EQ(machine.state.asked, (std::vector<size_t>{2, 3, 4}));
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
    if (attempts) *attempts = machine.state.asked.size();
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

// y = attention of x with itself, [s, 8] in f16, or in two steps by way of t.
std::shared_ptr<const Executable> attention_or_steps() {
  tessera::test::Builder b;
  b.exe->target = "cuda sm_90";
  auto s = b.symbol("s");
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
  explicit AttentionRun(bool wait, std::set<size_t> takes = {kOperations}) {
    machine.state.takes = std::move(takes);
    machine.state.gpu.kernel("step", 4, [](const FakeGpu::Launch&) { return CUDA_SUCCESS; });
    ExecutorOptions options;
    options.pool = ThreadPool::create(1);
    options.wait_for_plans = wait;
    options.gpu_context = machine.gpu->context().shared_from_this();
    auto made = Executor::create({attention_or_steps()}, options);
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
  int64_t arena = 0;
};

TEST(CudnnAttention, StepsUntilThePlanIsMade) {
  AttentionRun run(false);
  for (int64_t size : {4, 5, 6}) EXPECT_EQ(run.call(size), std::pair(2, 0));
  ASSERT_TRUE(run.executor->wait().ok());
  EXPECT_TRUE(run.machine.state.asked.empty()) << "sizes that came once";
  auto [launched, ran] = run.call(5);
  EXPECT_EQ(launched + 2 * ran, 2) << "one or the other";
  ASSERT_TRUE(run.executor->wait().ok());
  EXPECT_EQ(run.call(5), std::pair(0, 1));
  EXPECT_EQ(run.arena, 1024) << "the workspace, and no room for what only the steps use";
  EXPECT_EQ(run.machine.state.asked, (std::vector<size_t>{kOperations}));
  EXPECT_EQ(run.call(5), std::pair(0, 1));
  EXPECT_EQ(run.machine.state.asked.size(), 1u);
}

TEST(CudnnAttention, AnExecutorThatGoesLeavesNoPlanBeingMade) {
  AttentionRun run(false);
  for (int call : {1, 2})
    for (int64_t size = 1; size < 20; ++size) EXPECT_EQ(run.call(size).first % 2, 0) << call;
  run.executor.reset();
  auto engines = AttentionEngines::of(run.machine.gpu->context());
  ASSERT_TRUE(engines.ok());
  (*engines)->wait(); // nothing is left to wait for
  size_t asked = run.machine.state.asked.size();
  EXPECT_LE(asked, 19u);
  engines->reset();
  EXPECT_EQ(run.machine.state.asked.size(), asked);
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
  EXPECT_GE(run.machine.state.asked.size(), 1u);
}

} // namespace
} // namespace tessera::cuda
