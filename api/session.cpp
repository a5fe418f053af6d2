#include "api/session.h"
#include "graph/support/log.h"
#include <chrono>
#include <mutex>

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

  Result<std::shared_ptr<const Executable>> recompile(const GuardMiss& miss) {
    std::lock_guard lock(mutex);
    bool specialized = !options.specialize.empty() && static_cast<int>(variants.size()) < options.max_variants;
    if (!specialized && !options.specialize.empty() && !generic) {
      TESSERA_ASSIGN(generic, make({}, false));
      return generic->compiled.executable;
    }
    TESSERA_ASSIGN(auto variant, make(miss.sizes, specialized));
    return variant->compiled.executable;
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
  bool want_specialized = !impl_->options.specialize.empty() && impl_->options.on_miss == SessionOptions::OnMiss::Compile;
  for (auto& v : impl_->variants)
    if (v != impl_->generic) executables.push_back(v->compiled.executable);
  if (!want_specialized || executables.empty()) executables.push_back(impl_->generic->compiled.executable);
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
Result<std::vector<Tensor>> Session::run(const std::map<std::string, Tensor>& inputs, RunStats* stats) { return impl_->executor->run(inputs, stats); }
const std::vector<std::shared_ptr<Variant>>& Session::variants() const { return impl_->variants; }
const onnx::ModelInfo& Session::model_info() const { return impl_->info; }
double Session::import_ms() const { return impl_->import_ms; }

} // namespace tessera
