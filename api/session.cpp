#include "api/session.h"
#include "graph/support/log.h"
#include <chrono>
#include <mutex>
#include <set>

namespace tessera {

struct Session::Impl {
  std::string path;
  SessionOptions options;
  onnx::ModelInfo info;
  double import_ms = 0;
  std::mutex mutex; // of variants: executors on several threads may recompile
  std::vector<std::shared_ptr<Variant>> variants;
  std::shared_ptr<Variant> generic;
  std::unique_ptr<Executor> executor;
  std::set<std::map<std::string, int64_t>> decided; // sizes that specialize() has seen

  // Imports anew (a graph is consumed by its compile) and compiles. `sizes` are those of the call that asks, by symbol;
  // `specialized` puts the requested guards on them.
  Result<std::shared_ptr<Variant>> make(const std::map<std::string, int64_t>& sizes, bool specialized) {
    auto start = std::chrono::steady_clock::now();
    onnx::ImportOptions import = options.import;
    for (const auto& [symbol, size] : sizes) import.dim_hints[symbol] = size;
    TESSERA_ASSIGN(auto model, onnx::import_file(path, import));
    import_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    info = model.info;
    auto variant = std::make_shared<Variant>();
    variant->label = "generic";
    if (specialized) {
      variant->label.clear();
      for (const auto& [symbol, how] : options.specialize) {
        auto s = model.graph.env().find(symbol);
        if (!s) return Diagnostic(ErrorCode::Usage, "the model has no symbolic dimension '" + symbol + "' to specialize");
        auto size = sizes.find(symbol);
        if (size == sizes.end()) continue;
        bool exact = how.kind == Specialization::Kind::Exact;
        if (!exact && size->second % how.divisor != 0) continue; // this call does not have the property
        auto condition = exact ? sym_eq(*s, size->second) : sym_eq(mod(*s, how.divisor), 0);
        TESSERA_TRY(model.graph.env().require(condition, GuardClass::Assumed, "specialized on request", Location{path, "", "", "", 0, 0}));
        variant->label += (variant->label.empty() ? "" : ", ") + symbol + (exact ? "=" + std::to_string(size->second) : "%" + std::to_string(how.divisor) + "=0");
      }
      if (variant->label.empty()) variant->label = "generic";
      model.graph.simplify_shapes();
    }
    TESSERA_ASSIGN(variant->compiled, compile(std::move(model.graph), options.compile));
    variant->compiled.report.import_ms = import_ms;
    variants.push_back(variant);
    return variant;
  }

  // Called by an executor whose variants all missed an assumption (a broadcast that was taken for equal sizes).
  Result<std::shared_ptr<const Executable>> recompile(const GuardMiss& miss) {
    std::lock_guard lock(mutex);
    TESSERA_ASSIGN(auto variant, make(miss.sizes, false));
    return variant->compiled.executable;
  }

  // With specialization asked for: sees to it that shapes met for the first time have a variant that fits them. Reports what
  // missed; the executor's own check at each call then picks the variant.
  Status specialize(const std::map<std::string, Tensor>& inputs, std::vector<GuardMiss>& misses, bool& compiled) {
    std::map<std::string, int64_t> sizes;
    for (const auto& b : generic->compiled.executable->inputs) {
      auto it = inputs.find(b.name);
      if (it == inputs.end()) return {}; // the executor will say so
      const auto& shape = generic->compiled.executable->buffers[static_cast<size_t>(b.buffer)].shape;
      for (size_t d = 0; d < shape.size() && d < it->second.dims().size(); ++d)
        if (shape[d].is_symbol()) sizes.emplace(shape[d].symbol_name(), it->second.dims()[d]);
    }
    if (!decided.insert(sizes).second) return {};
    std::lock_guard lock(mutex);
    int specialized = 0;
    for (const auto& v : variants) {
      if (v == generic) continue;
      ++specialized;
      const Guard* missed = nullptr;
      const auto& env = *v->compiled.executable->env;
      std::unordered_map<uint64_t, int64_t> values;
      for (const auto& [name, size] : sizes)
        if (auto symbol = env.find(name)) values.emplace(symbol->symbol_id(), size);
      for (const auto& g : env.guards()) {
        auto holds = g.condition.eval(values);
        if (holds.ok() && *holds == 0) { missed = &g; break; }
      }
      if (!missed) return {};
      misses.push_back({missed->condition.str(), missed->reason, missed->where.str(), sizes});
    }
    if (options.on_miss == SessionOptions::OnMiss::Generic && specialized > 0) return {};
    if (specialized >= options.max_variants) return {};
    TESSERA_ASSIGN(auto variant, make(sizes, true));
    compiled = true;
    TESSERA_LOGF(LogChannel::Recompiles, "variant " + variant->label + " compiled in " + std::to_string(variant->compiled.report.total_ms) + " ms" +
                                             (misses.empty() ? ": first call" : ": guard " + misses.back().guard + " missed"));
    return {};
  }
};

Session::Session() : impl_(std::make_shared<Impl>()) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::open(const std::string& path, SessionOptions options) {
  std::unique_ptr<Session> session(new Session());
  auto& impl = *session->impl_;
  impl.path = path;
  impl.options = std::move(options);
  if (!impl.options.executor.pool) impl.options.executor.pool = ThreadPool::create(impl.options.compile.threads);
  impl.options.compile.threads = impl.options.executor.pool->threads();
  TESSERA_ASSIGN(impl.generic, impl.make({}, false));
  TESSERA_ASSIGN(impl.executor, session->new_executor());
  return session;
}

Result<std::unique_ptr<Executor>> Session::new_executor() {
  ExecutorOptions options = impl_->options.executor;
  std::weak_ptr<Impl> weak = impl_; // the session's own executor must not keep the session alive
  options.recompile = [weak](const std::map<std::string, Dims>&, const GuardMiss& miss) -> Result<std::shared_ptr<const Executable>> {
    auto impl = weak.lock();
    if (!impl) return Diagnostic(ErrorCode::Cancelled, "the session was closed");
    return impl->recompile(miss);
  };
  std::vector<std::shared_ptr<const Executable>> executables;
  std::lock_guard lock(impl_->mutex);
  for (auto& v : impl_->variants)
    if (v != impl_->generic) executables.push_back(v->compiled.executable);
  executables.push_back(impl_->generic->compiled.executable);
  return Executor::create(std::move(executables), std::move(options));
}

static std::vector<IoInfo> infos(const Executable& e, const std::vector<Binding>& bindings) {
  std::vector<IoInfo> out;
  for (const auto& b : bindings) {
    const auto& buffer = e.buffers[static_cast<size_t>(b.buffer)];
    out.push_back({b.name, buffer.dtype, buffer.shape});
  }
  return out;
}
std::vector<IoInfo> Session::inputs() const { return infos(*impl_->generic->compiled.executable, impl_->generic->compiled.executable->inputs); }
std::vector<IoInfo> Session::outputs() const { return infos(*impl_->generic->compiled.executable, impl_->generic->compiled.executable->outputs); }

Result<std::vector<Tensor>> Session::run(const std::map<std::string, Tensor>& inputs, RunStats* stats) {
  if (impl_->options.specialize.empty()) return impl_->executor->run(inputs, stats);
  std::vector<GuardMiss> misses;
  bool compiled = false;
  auto start = std::chrono::steady_clock::now();
  TESSERA_TRY(impl_->specialize(inputs, misses, compiled));
  if (compiled) {
    TESSERA_ASSIGN(impl_->executor, new_executor());
  }
  double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  auto result = impl_->executor->run(inputs, stats);
  if (stats && compiled) {
    stats->recompiles += 1;
    stats->recompile_ms += ms;
    if (stats->misses.empty()) stats->misses = std::move(misses);
  }
  return result;
}
const std::vector<std::shared_ptr<Variant>>& Session::variants() const { return impl_->variants; }
const onnx::ModelInfo& Session::model_info() const { return impl_->info; }
double Session::import_ms() const { return impl_->import_ms; }

} // namespace tessera
