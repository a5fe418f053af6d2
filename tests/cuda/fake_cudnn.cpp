#include "tests/cuda/fake_cudnn.h"
#include "runtime/cuda/library_choices.h"
#include <cstring>

namespace tessera::cuda::test::fake_cudnn {
namespace {

struct Fake {
  cudnnBackendDescriptorType_t type;
  std::map<int, std::vector<std::byte>> attributes;
};
Fake* of(cudnnBackendDescriptor_t d) { return reinterpret_cast<Fake*>(d); }

Library* library = nullptr;

template <class T>
T value(cudnnBackendDescriptor_t d, int attribute, size_t i = 0) {
  T out{};
  const auto& bytes = of(d)->attributes[attribute];
  EXPECT_GE(bytes.size(), (i + 1) * sizeof(T)) << "attribute " << attribute << " is not set";
  if (bytes.size() >= (i + 1) * sizeof(T)) std::memcpy(&out, bytes.data() + i * sizeof(T), sizeof(T));
  return out;
}
template <class T>
void set(cudnnBackendDescriptor_t d, int attribute, const T& value) {
  auto& bytes = of(d)->attributes[attribute];
  bytes.resize(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
}
template <class T>
size_t count(cudnnBackendDescriptor_t d, int attribute) {
  return of(d)->attributes[attribute].size() / sizeof(T);
}

template <class T>
void list(const std::vector<T>& from, int64_t* count, void* to) {
  *count = static_cast<int64_t>(from.size());
  if (!from.empty()) std::memcpy(to, from.data(), from.size() * sizeof(T));
}

// A configuration that the heuristics propose carries the graph itself; another one has it from its engine.
constexpr int kProposedFor = CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH;

void propose(cudnnBackendDescriptor_t heuristics, cudnnBackendDescriptor_t config) {
  ++library->heuristics;
  set(config, kProposedFor, value<cudnnBackendDescriptor_t>(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
  set(config, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, library->engine);
  set(config, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, library->knob);
}

int64_t give_knobs(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t* knobs) {
  set(knobs[0], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_KNOB_TYPE_TILE_SIZE);
  set(knobs[0], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value<int64_t>(config, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  set(knobs[1], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_KNOB_TYPE_STAGES);
  set(knobs[1], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, int64_t{1});
  return 2;
}

cudnnStatus_t finalize_plan(cudnnBackendDescriptor_t plan) {
  using Handle = cudnnBackendDescriptor_t;
  const auto config = value<Handle>(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const bool proposed = of(config)->attributes.contains(kProposedFor);
  int64_t engine = 0;
  std::string knobs;
  Handle graph = nullptr;
  if (proposed) {
    graph = value<Handle>(config, kProposedFor);
    engine = value<int64_t>(config, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    knobs = " 2=" + std::to_string(value<int64_t>(config, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)) + " 14=1";
  } else {
    const auto from = value<Handle>(config, CUDNN_ATTR_ENGINECFG_ENGINE);
    graph = value<Handle>(from, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    engine = value<int64_t>(from, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    for (size_t i = 0; i < count<Handle>(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES); ++i) {
      const auto knob = value<Handle>(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
      knobs += " " + std::to_string(value<int>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)) + "=" +
               std::to_string(value<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
    }
  }
  std::string text = "engine " + std::to_string(engine) + " knobs" + knobs;
  for (size_t i = 0; i < count<Handle>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS); ++i) {
    const auto op = value<Handle>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i);
    if (of(op)->type != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) continue;
    const auto x = value<Handle>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
    for (size_t d = 0; d < count<int64_t>(x, CUDNN_ATTR_TENSOR_DIMENSIONS); ++d)
      text += (d == 0 ? " x " : ",") + std::to_string(value<int64_t>(x, CUDNN_ATTR_TENSOR_DIMENSIONS, d));
    if (library->refused.contains({engine, value<int64_t>(x, CUDNN_ATTR_TENSOR_DIMENSIONS)}))
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
  library->plans.push_back(text);
  return CUDNN_STATUS_SUCCESS;
}

} // namespace

Machine::Machine(const std::shared_ptr<Cache>& cache, size_t version) {
  library = &state;
  Cudnn& t = *dnn;
  t.version = version;
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
    if (of(d)->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return finalize_plan(d);
    if (of(d)->type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
    size_t operations = of(d)->attributes[CUDNN_ATTR_OPERATIONGRAPH_OPS].size() / sizeof(void*);
    library->requested.push_back(operations);
    return library->takes.contains(operations) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
  };
  t.cudnnBackendGetAttribute = [](cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t, int64_t, int64_t* count, void* values) {
    *count = 1;
    auto* handles = static_cast<cudnnBackendDescriptor_t*>(values);
    auto* number = static_cast<int64_t*>(values);
    switch (static_cast<int>(name)) {
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: list(library->numerical, count, values); break;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: list(library->behaviour, count, values); break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: *number = 1000; break;
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: propose(d, handles[0]); break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      set(handles[0], CUDNN_ATTR_ENGINE_GLOBAL_INDEX, value<int64_t>(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
      break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: *number = value<int64_t>(d, name); break;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: *count = give_knobs(d, handles); break;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE: *static_cast<int*>(values) = value<int>(d, name); break;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE: *number = value<int64_t>(d, name); break;
    default: ADD_FAILURE() << "attribute " << name; return CUDNN_STATUS_NOT_SUPPORTED;
    }
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
  auto choices = LibraryChoices::of(gpu->context());
  EXPECT_TRUE(choices.ok());
  if (choices.ok()) (*choices)->keep_in(cache);
}

Machine::~Machine() {
  dnn.reset();
  gpu.reset(); // the context, and with it the library
  EXPECT_EQ(state.live, 0) << "descriptors are left";
  EXPECT_EQ(state.gpu.live_bytes(), 0) << "device memory is left";
  library = nullptr;
}

Convolution::Convolution(int64_t batch, int64_t size)
    : x(filled(DType::F16, {batch, 8, size, size}, channels_last({batch, 8, size, size}), 1)),
      w(filled(DType::F16, {16, 8, 3, 3}, channels_last({16, 8, 3, 3}), 2)),
      y(filled(DType::F16, {batch, 16, size, size}, channels_last({batch, 16, size, size}), 3)),
      bias(filled(DType::F16, {batch, 16, size, size}, {0, 1, 0, 0}, 4)) {
  call.strides = call.pads_begin = call.pads_end = call.dilations = {1, 1};
}

Result<bool> fused(Machine& machine, Convolution c) {
  ShapeEnv env;
  if (c.batch_varies || c.size_varies) {
    const auto size = [&](const char* name, size_t d, bool varies) {
      return varies ? env.named_symbol(name) : SymExpr(c.x.view.shape[d]);
    };
    c.call.x.shape = {size("n", 0, c.batch_varies), size("c", 1, false), size("h", 2, c.size_varies),
                      size("w", 3, c.size_varies)};
  }
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

} // namespace tessera::cuda::test::fake_cudnn
