// Choosing among the engines that cuDNN proposes for a graph.
#include "base/log.h"
#include "runtime/cuda/cudnn.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

constexpr int64_t kMaxWorkspace = int64_t{256} << 20;
constexpr int64_t kMaxEngines = 32; // of one mode of the heuristics
constexpr int64_t kMaxKnobs = 64;   // of one engine

class EngineSearch {
public:
  EngineSearch(const Cudnn& library, cudnnHandle_t handle, const EngineOptions& options)
      : library_(library), handle_(handle), options_(options) {}

  // Null where none of the library's proposals will do.
  Result<std::shared_ptr<const ConvEngine>> run(std::span<const Descriptor> graph) const {
    TESSERA_ASSIGN(Descriptor operations, start(graph));
    if (auto status = operations.finalize(); !status) return no_engine(status.error());
    for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      TESSERA_ASSIGN(Descriptor heuristics, Descriptor::create(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
      TESSERA_TRY(heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations));
      TESSERA_TRY(heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode));
      if (auto status = heuristics.finalize(); !status) {
        TESSERA_TRY(no_engine(status.error()));
        continue;
      }
      TESSERA_ASSIGN(auto found, first(heuristics));
      if (found) return found;
    }
    return std::shared_ptr<const ConvEngine>();
  }

  // Null where this one will not do.
  Result<std::shared_ptr<const ConvEngine>> run(std::span<const Descriptor> graph, const EngineChoice& choice) const {
    TESSERA_ASSIGN(Descriptor operations, start(graph));
    if (auto status = operations.finalize(); !status) return no_engine(status.error());
    TESSERA_ASSIGN(Descriptor engine, Descriptor::create(library_, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    TESSERA_TRY(engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, operations));
    TESSERA_TRY(engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, choice.engine));
    if (auto status = engine.finalize(); !status) return no_engine(status.error());
    TESSERA_ASSIGN(bool wanted, will_do(engine));
    if (!wanted) return std::shared_ptr<const ConvEngine>();
    TESSERA_ASSIGN(Descriptor config, Descriptor::create(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    TESSERA_TRY(config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine));
    std::vector<Descriptor> knobs;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const auto& [type, value] : choice.knobs) {
      TESSERA_ASSIGN(Descriptor knob, Descriptor::create(library_, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
      TESSERA_TRY(
          knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(type)));
      TESSERA_TRY(knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, value));
      if (auto status = knob.finalize(); !status) return no_engine(status.error());
      handles.push_back(knob.handle());
      knobs.push_back(std::move(knob));
    }
    if (!handles.empty())
      TESSERA_TRY(config.set_all(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 static_cast<int64_t>(handles.size()), handles.data()));
    if (auto status = config.finalize(); !status) return no_engine(status.error());
    return plan(config, choice);
  }

private:
  // The graph, not finalized.
  Result<Descriptor> start(std::span<const Descriptor> graph) const {
    TESSERA_ASSIGN(Descriptor operations, Descriptor::create(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    TESSERA_TRY(operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_));
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const auto& op : graph) handles.push_back(op.handle());
    TESSERA_TRY(operations.set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   static_cast<int64_t>(handles.size()), handles.data()));
    return operations;
  }

  // Null where the engine does not take the graph, or wants too much memory for it.
  Result<std::shared_ptr<const ConvEngine>> plan(const Descriptor& config, std::optional<EngineChoice> choice) const {
    TESSERA_ASSIGN(Descriptor plan, Descriptor::create(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
    TESSERA_TRY(plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_));
    TESSERA_TRY(plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    if (!plan.finalize()) return std::shared_ptr<const ConvEngine>();
    int64_t bytes = 0, one = 0;
    TESSERA_CUDNN_TRY(library_, "querying the workspace", cudnnBackendGetAttribute, plan.handle(),
                      CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one, &bytes);
    if (bytes > kMaxWorkspace) return std::shared_ptr<const ConvEngine>();
    return std::make_shared<const ConvEngine>(ConvEngine{std::move(plan), bytes, std::move(choice)});
  }

  Result<std::shared_ptr<const ConvEngine>> first(const Descriptor& heuristics) const {
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = 0; i < kMaxEngines; ++i) {
      TESSERA_ASSIGN(Descriptor config, Descriptor::create(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
      handles.push_back(config.handle());
      configs.push_back(std::move(config));
    }
    int64_t count = 0;
    TESSERA_CUDNN_TRY(library_, "querying engines", cudnnBackendGetAttribute, heuristics.handle(),
                      CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, kMaxEngines, &count,
                      handles.data());
    for (int64_t i = 0; i < std::min(count, kMaxEngines); ++i) {
      const Descriptor& config = configs[static_cast<size_t>(i)];
      TESSERA_ASSIGN(Descriptor engine, engine_of(config));
      TESSERA_ASSIGN(bool wanted, will_do(engine));
      if (!wanted) continue;
      // Heuristics propose what an engine then refuses: the next one.
      TESSERA_ASSIGN(auto made, plan(config, choice_of(config, engine)));
      if (made) return made;
    }
    return std::shared_ptr<const ConvEngine>();
  }

  Result<Descriptor> engine_of(const Descriptor& config) const {
    TESSERA_ASSIGN(Descriptor engine, Descriptor::create(library_, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    auto handle = engine.handle();
    int64_t one = 0;
    TESSERA_CUDNN_TRY(library_, "querying an engine", cudnnBackendGetAttribute, config.handle(),
                      CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &handle);
    return engine;
  }

  // Nothing where the library does not say it.
  std::optional<EngineChoice> choice_of(const Descriptor& config, const Descriptor& engine) const {
    auto get = [&](cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t most, void* to) -> int64_t {
      int64_t count = 0;
      const auto status = library_.cudnnBackendGetAttribute(from, name, type, most, &count, to);
      return status == CUDNN_STATUS_SUCCESS && count <= most ? count : -1;
    };
    EngineChoice out;
    if (get(engine.handle(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &out.engine) != 1)
      return std::nullopt;
    std::vector<Descriptor> knobs;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = 0; i < kMaxKnobs; ++i) {
      auto knob = Descriptor::create(library_, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
      if (!knob) return std::nullopt;
      handles.push_back(knob->handle());
      knobs.push_back(std::move(*knob));
    }
    const int64_t count = get(config.handle(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                              kMaxKnobs, handles.data());
    if (count < 0) return std::nullopt;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      cudnnBackendKnobType_t type{};
      int64_t value = 0;
      if (get(handles[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type) != 1 ||
          get(handles[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value) != 1)
        return std::nullopt;
      out.knobs.emplace_back(static_cast<int64_t>(type), value);
    }
    return out;
  }

  Result<bool> will_do(const Descriptor& engine) const {
    cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    TESSERA_CUDNN_TRY(library_, "querying an engine's notes", cudnnBackendGetAttribute, engine.handle(),
                      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                      &count, numerical);
    for (int64_t i = 0; i < count; ++i) switch (numerical[i]) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6: // cancel too many digits
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return false;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: // of f32 operands: in TF32
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        if (options_.dtype == DType::F32 && !options_.tf32) return false;
        break;
      default: break;
      }
    if (options_.compiled) return true;
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    TESSERA_CUDNN_TRY(library_, "querying an engine's notes", cudnnBackendGetAttribute, engine.handle(),
                      CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count,
                      behaviour);
    return std::find(behaviour, behaviour + count, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) == behaviour + count;
  }

  const Cudnn& library_;
  cudnnHandle_t handle_;
  EngineOptions options_;
};

} // namespace

Result<std::shared_ptr<const ConvEngine>> no_engine(const Diagnostic& why) {
  if (why.code == ErrorCode::OutOfMemory) return why;
  TESSERA_LOGF(LogChannel::Perf, "cuDNN takes no such graph: " + why.message);
  return std::shared_ptr<const ConvEngine>();
}

Result<std::shared_ptr<const ConvEngine>> find_engine(const Cudnn& library, cudnnHandle_t handle,
                                                      std::span<const Descriptor> operations,
                                                      const EngineOptions& options) {
  return EngineSearch(library, handle, options).run(operations);
}

Result<std::shared_ptr<const ConvEngine>> make_engine(const Cudnn& library, cudnnHandle_t handle,
                                                      std::span<const Descriptor> operations,
                                                      const EngineOptions& options, const EngineChoice& choice) {
  return EngineSearch(library, handle, options).run(operations, choice);
}

Status run_engine(const Cudnn& library, const std::string& name, const ConvEngine& engine, CUstream stream,
                  const std::vector<int64_t>& ids, const std::vector<void*>& data, void* workspace) {
  TESSERA_ASSIGN(Descriptor pack, Descriptor::create(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  TESSERA_TRY(pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids));
  TESSERA_TRY(pack.set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                           static_cast<int64_t>(data.size()), data.data()));
  TESSERA_TRY(pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace));
  TESSERA_TRY(pack.finalize());
  std::lock_guard lock(library.running);
  TESSERA_CUDNN_TRY(library, name, cudnnSetStream, library.handle, stream);
  TESSERA_CUDNN_TRY(library, name, cudnnBackendExecute, library.handle, engine.plan.handle(), pack.handle());
  return {};
}

} // namespace tessera::cuda
