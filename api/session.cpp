#include "api/session.h"
#include "api/variant_source.h"
#include "graph/support/guarded.h"
#include "graph/support/in_use.h"
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"
#include "runtime/guards.h"
#include "runtime/memory_account.h"
#include <algorithm>
#include <mutex>
#include <set>

namespace tessera {
namespace {

constexpr const char* kOneThread = "each thread takes a session or an executor (new_executor()) of its own";

// The first guard that does not hold for these sizes; guards over sizes that are not known yet are passed over.
std::optional<Guard> missed(const Executable& executable, const Sizes& sizes) {
  const ShapeEnv& env = *executable.env;
  std::unordered_map<uint64_t, int64_t> values;
  std::vector<Guard> guards = env.guards();
  for (const auto& [name, size] : sizes)
    if (auto symbol = env.find(name)) {
      values.emplace(symbol->symbol_id(), size);
      for (Guard& fact : facts_as_guards(env, *symbol)) guards.push_back(std::move(fact));
    }
  for (Guard& guard : guards) {
    auto holds = guard.condition.eval(values);
    if (holds.ok() && *holds == 0) return std::move(guard);
  }
  for (const Step& step : executable.steps)
    if (const auto* control = std::get_if<ControlStep>(&step))
      for (const auto& body : control->bodies)
        if (auto guard = missed(*body.executable, sizes)) return guard;
  return std::nullopt;
}

// The executables that an executor has been given. Its recompile function must not offer them again.
using Known = std::set<const Executable*>; // only queried for membership

// Whether it is the variant's, or was before better kernels were found.
bool holds(const SessionVariant& v, const Executable& executable) {
  auto is = [&](const std::shared_ptr<const Executable>& e) { return e.get() == &executable; };
  return is(v.executable) || std::any_of(v.earlier.begin(), v.earlier.end(), is);
}
// Whether an executor has not been given the variant yet; from now on it has.
bool is_new(const SessionVariant& v, Known& has) {
  if (std::any_of(v.earlier.begin(), v.earlier.end(), [&](const auto& e) { return has.contains(e.get()); }))
    return false; // it takes the successor by itself
  return has.insert(v.executable.get()).second;
}

} // namespace

struct Session::Impl {
  std::string path;
  SessionOptions options;
  std::unique_ptr<VariantSource> source;
  InUse in_use;             // of calls: run(), run_on_device(), output_sizes()
  mutable std::mutex mutex; // of variants: executors on several threads may recompile
  std::vector<std::shared_ptr<SessionVariant>> variants;
  mutable std::mutex totals_mutex; // not held while anything is compiled
  CompileTotals totals;
  std::shared_ptr<const Executable> generic; // of the first variant
  // Of the thread that the session belongs to:
  std::unique_ptr<Executor> executor;
  std::shared_ptr<Known> known;
  std::set<std::string> failed_labels; // specializations that did not compile
  // With tuning in the background:
  std::set<std::string> as_loops; // nodes whose library calls were refused
  std::shared_ptr<BackgroundWork> tuner;
  std::shared_ptr<Successors> successors;

  // What of a specialization these sizes have.
  [[nodiscard]] static Conditions wanted(const std::map<std::string, Specialization>& specialize, const Sizes& sizes) {
    Conditions out;
    for (const auto& [symbol, how] : specialize) {
      auto size = sizes.find(symbol);
      bool exact = how.kind == Specialization::Kind::Exact;
      if (exact ? size == sizes.end() : size != sizes.end() && size->second % how.divisor != 0) continue;
      out.of.emplace_back(symbol, how);
      out.label += (out.label.empty() ? "" : ", ") + symbol +
                   (exact ? "=" + std::to_string(size->second) : "%" + std::to_string(how.divisor) + "=0");
    }
    return out;
  }

  // The variants to begin with.
  Status begin() {
    const Stopwatch watch;
    TESSERA_ASSIGN(variants, source->open());
    generic = variants.front()->executable;
    count(*variants.front(), watch.ms());
    return {};
  }
  void count(const SessionVariant& made, double ms) {
    std::lock_guard lock(totals_mutex);
    totals.variants = static_cast<int64_t>(variants.size());
    totals.compiles += made.from_file ? 0 : 1;
    totals.kernels += made.kernels;
    totals.cached_kernels += made.cached_kernels;
    totals.ms += ms;
  }
  // Those that are made before any call.
  Status make_requested() {
    std::lock_guard lock(mutex);
    for (const auto& specialize : options.variants) {
      Sizes sizes;
      for (const auto& [symbol, how] : specialize)
        if (how.kind == Specialization::Kind::Exact) sizes.emplace(symbol, how.size);
      const Conditions conditions = wanted(specialize, sizes);
      TESSERA_TRY(make({.sizes = sizes, .specialization = &conditions}));
    }
    return {};
  }
  // Another variant, counted. The mutex is held.
  Result<std::shared_ptr<SessionVariant>> make(const VariantRequest& request) {
    const Stopwatch watch;
    auto made = source->make(request);
    if (made.ok()) {
      variants.push_back(*made);
      count(**made, watch.ms());
      return made;
    }
    std::lock_guard lock(totals_mutex);
    ++totals.failures;
    totals.ms += watch.ms();
    return made;
  }

  // Called by an executor when an assumption of all its variants is violated, and before it falls back from a
  // specialized variant to its last one. Nothing: the executor has a variant that fits, or gets none.
  Result<std::shared_ptr<const Executable>> recompile(const GuardMiss& miss, Known& has) {
    std::lock_guard lock(mutex);
    if (!miss.refused.empty()) return without_calls(miss, has);
    bool fits = false;
    for (const auto& v : variants) {
      if (v->fits_no_call || missed(*v->executable, miss.sizes)) continue;
      if (is_new(*v, has)) return v->executable; // another executor's
      fits = true;
    }
    if (fits) return std::shared_ptr<const Executable>();
    TESSERA_ASSIGN(auto variant, make({.sizes = miss.sizes, .of_call = true, .as_loops = as_loops}));
    has.insert(variant->executable.get());
    return variant->executable;
  }

  // A variant in which the nodes of library calls that were refused are loops. The mutex is held.
  Result<std::shared_ptr<const Executable>> without_calls(const GuardMiss& miss, Known& has) {
    std::set<std::string> nodes;
    for (const auto& v : variants) {
      const auto refused = source->nodes_of(*v, *miss.refused_in, miss.refused);
      nodes.insert(refused.begin(), refused.end());
    }
    if (nodes.empty()) return std::shared_ptr<const Executable>();
    for (const auto& v : variants) // another executor's
      if (!v->specialized && std::includes(v->as_loops.begin(), v->as_loops.end(), nodes.begin(), nodes.end()) &&
          is_new(*v, has))
        return v->executable;
    as_loops.insert(nodes.begin(), nodes.end());
    TESSERA_ASSIGN(auto variant, make({.of_call = true, .as_loops = as_loops}));
    has.insert(variant->executable.get());
    return variant->executable;
  }

  // The sizes of a call; nothing when the inputs are not what the model declares, which the executor will say.
  [[nodiscard]] std::optional<Sizes> sizes_of(const std::map<std::string, Tensor>& inputs) const {
    Sizes sizes;
    for (const auto& b : generic->inputs) {
      auto it = inputs.find(b.name);
      const auto& buffer = generic->buffers[static_cast<size_t>(b.buffer)];
      if (it == inputs.end() || it->second.dtype() != buffer.dtype || it->second.dims().size() != buffer.shape.size())
        return std::nullopt;
      for (size_t d = 0; d < buffer.shape.size(); ++d) {
        if (!buffer.shape[d].is_symbol()) continue;
        auto [at, fresh] = sizes.emplace(buffer.shape[d].symbol_name(), it->second.dims()[d]);
        if (!fresh && at->second != it->second.dims()[d]) return std::nullopt;
      }
    }
    return sizes;
  }

  // Ensures that a call has the requested specialized variant, and says in `stats` what that cost. The
  // executor's own check of the guards then picks the variant and reports what was missed.
  Status specialize(const std::map<std::string, Tensor>& inputs, RunStats& stats) {
    auto sizes = sizes_of(inputs);
    if (!sizes) return {};
    const Conditions want = wanted(options.specialize, *sizes);
    if (want.of.empty() || failed_labels.contains(want.label)) return {};
    std::lock_guard lock(mutex);
    int specialized = 0;
    for (const auto& v : variants) {
      if (!v->specialized) continue;
      if (v->label == want.label) return give(*v); // it may have failed to join before
      ++specialized;
    }
    if (specialized >= options.max_variants) return {};
    if (options.on_miss == SessionOptions::OnMiss::Generic && specialized > 0) return {};
    // Sizes that the model refuses are an error, not a reason to compile.
    if (const auto g = missed(*generic, *sizes); g && g->cls == GuardClass::Required) return {};
    std::string why = "first call";
    for (const auto& v : variants)
      if (const auto g = v->specialized ? missed(*v->executable, *sizes) : std::nullopt)
        why = "variant " + v->label + " missed " + readable(g->condition) + " (" + g->reason + ")";
    const Stopwatch watch;
    auto variant = make({.sizes = *sizes, .specialization = &want, .of_call = true, .as_loops = as_loops});
    stats.recompile_ms = watch.ms();
    if (!variant.ok()) {
      if (variant.error().code == ErrorCode::OutOfMemory) return std::move(variant).failure();
      if (failed_labels.size() >= 64) failed_labels.clear();
      failed_labels.insert(want.label);
      TESSERA_LOGF(LogChannel::Recompiles, "variant " + want.label + " failed to compile after " +
                                               std::to_string(stats.recompile_ms) +
                                               " ms, the generic one runs: " + variant.error().str());
      return {};
    }
    stats.recompiles = 1;
    TESSERA_LOGF(LogChannel::Recompiles, "variant " + want.label + " took " + std::to_string(stats.recompile_ms) +
                                             " ms: " + why + " for " + text_of(*sizes));
    return give(**variant);
  }

  // The session's own executor has the variant afterwards. The mutex is held.
  Status give(const SessionVariant& variant) {
    // More conditions first: they are the better fit.
    size_t at = 0;
    for (size_t i = 0; i < executor->variants().size(); ++i)
      for (const auto& v : variants) {
        if (!holds(*v, *executor->variants()[i])) continue;
        if (v.get() == &variant) return {};
        if (v->conditions >= variant.conditions) at = i + 1;
      }
    known->insert(variant.executable.get());
    return executor->add_variant(variant.executable, at);
  }

  // The variant of an executable, or of one that it has replaced. The mutex is held.
  [[nodiscard]] size_t variant_of(const Executable& executable) const {
    auto found = std::find_if(variants.begin(), variants.end(), [&](const auto& v) { return holds(*v, executable); });
    return static_cast<size_t>(found - variants.begin());
  }

  // ---- for the tuner's thread
  [[nodiscard]] std::shared_ptr<const SessionVariant> variant_with(const Executable& executable) {
    std::lock_guard lock(mutex);
    const size_t i = variant_of(executable);
    return i == variants.size() ? nullptr : variants[i];
  }
  void replace(const SessionVariant& before, std::shared_ptr<SessionVariant> better) {
    std::lock_guard lock(mutex);
    successors->add(*before.executable, better->executable);
    variants[variant_of(*before.executable)] = std::move(better);
  }
  Status start_tuning(const std::shared_ptr<Impl>& self) {
    successors = std::make_shared<Successors>();
    BackgroundHooks hooks;
    std::weak_ptr<Impl> weak = self;
    hooks.variant = [weak](const Executable& e) -> std::shared_ptr<const SessionVariant> {
      auto impl = weak.lock();
      return impl ? impl->variant_with(e) : nullptr;
    };
    hooks.replace = [weak](const SessionVariant& before, std::shared_ptr<SessionVariant> better) {
      if (auto impl = weak.lock()) impl->replace(before, std::move(better));
    };
    TESSERA_ASSIGN(tuner, source->start_tuning(std::move(hooks)));
    return {};
  }

  Status check_options() const {
    std::set<std::string> symbols;
    for (const auto& b : generic->inputs)
      for (const auto& d : generic->buffers[static_cast<size_t>(b.buffer)].shape)
        if (d.is_symbol()) symbols.insert(d.symbol_name());
    std::vector<std::pair<std::string, Specialization>> all(options.specialize.begin(), options.specialize.end());
    for (const auto& variant : options.variants) {
      all.insert(all.end(), variant.begin(), variant.end());
      for (const auto& [symbol, how] : variant)
        if (how.kind == Specialization::Kind::Exact && how.size < 0)
          return Diagnostic(ErrorCode::Usage, "the size of '" + symbol + "' that a variant is for is missing");
    }
    for (const auto& [symbol, how] : all) {
      if (how.divisor < 1) return Diagnostic(ErrorCode::Usage, "the divisor of '" + symbol + "' must be positive");
      if (symbols.contains(symbol)) continue;
      Diagnostic d(ErrorCode::Usage, "no input of the model has a symbolic dimension '" + symbol + "' to specialize");
      std::string names;
      for (const auto& s : symbols) names += (names.empty() ? "'" : ", '") + s + "'";
      return std::move(d).note(names.empty() ? "its inputs have constant sizes" : "it has " + names);
    }
    return {};
  }
};

namespace {

std::vector<IoInfo> infos(const Executable& e, const std::vector<Binding>& bindings) {
  std::vector<IoInfo> out;
  for (const auto& b : bindings) {
    const auto& buffer = e.buffers[static_cast<size_t>(b.buffer)];
    out.push_back({b.name, buffer.dtype, buffer.shape, b.indexed, b.list});
  }
  return out;
}

// An executor over the variants of this moment, specialized ones first and the generic one last.
template <class Impl>
Result<std::unique_ptr<Executor>> make_executor(const std::shared_ptr<Impl>& impl,
                                                const std::shared_ptr<Known>& known) {
  ExecutorOptions options = impl->options.executor;
  std::weak_ptr<Impl> weak = impl; // the session's own executor must not keep the session alive
  if (impl->tuner) options.observer = observe_calls(impl->tuner, impl->successors, known);
  options.recompile = [weak, known](const std::map<std::string, Dims>&,
                                    const GuardMiss& miss) -> Result<std::shared_ptr<const Executable>> {
    auto session = weak.lock();
    if (!session) return Diagnostic(ErrorCode::Cancelled, "the session was closed");
    return session->recompile(miss, *known);
  };
  std::vector<std::shared_ptr<SessionVariant>> variants;
  {
    std::lock_guard lock(impl->mutex);
    variants = impl->variants;
  }
  std::stable_sort(variants.begin() + 1, variants.end(),
                   [](const auto& a, const auto& b) { return a->conditions > b->conditions; });
  std::rotate(variants.begin(), variants.begin() + 1, variants.end());
  std::vector<std::shared_ptr<const Executable>> executables;
  for (const auto& v : variants) {
    known->insert(v->executable.get());
    executables.push_back(v->executable);
  }
  return Executor::create(std::move(executables), std::move(options));
}

} // namespace

Session::Session() : impl_(std::make_shared<Impl>()) {}
Session::~Session() {
  if (impl_->tuner) impl_->tuner->stop(); // executors that live on only count
}

Result<std::unique_ptr<Session>> Session::open(const std::string& path, SessionOptions options) {
  return guarded({"opening", path}, [&] { return make(path, nullptr, std::move(options)); });
}

Result<std::unique_ptr<Session>> Session::open_program(ProgramSource program, SessionOptions options) {
  return guarded("opening a program", [&] {
    auto shared = std::make_shared<const ProgramSource>(std::move(program));
    return make(shared->name, shared, std::move(options));
  });
}

Result<std::unique_ptr<Session>> Session::make(const std::string& path, std::shared_ptr<const ProgramSource> program,
                                               SessionOptions options) {
  std::unique_ptr<Session> session(new Session());
  auto& impl = *session->impl_;
  impl.path = path;
  impl.options = std::move(options);
  ExecutorOptions& run = impl.options.executor;
  if (!run.memory) run.memory = std::make_shared<MemoryAccount>(run.memory_limit);
  if (!run.pool) run.pool = ThreadPool::create(impl.options.compile.threads);
  impl.options.compile.threads = run.pool->threads();
  impl.source = make_variant_source(path, std::move(program), impl.options);
  TESSERA_TRY(impl.begin());
  TESSERA_TRY(impl.check_options());
  TESSERA_TRY(impl.make_requested());
  impl.known = std::make_shared<Known>();
  if (impl.options.compile_only) return session;
  TESSERA_TRY(impl.start_tuning(session->impl_));
  auto executor = make_executor(session->impl_, impl.known);
  if (!executor.ok() && impl.variants.front()->from_file)
    return std::move(executor).take_error().note(path + " is compiled for '" + impl.generic->target + "'");
  TESSERA_ASSIGN(impl.executor, std::move(executor));
  return session;
}

void Session::settle_tuning() {
  if (impl_->tuner) impl_->tuner->wait_idle();
}

Result<std::unique_ptr<Executor>> Session::new_executor() {
  return guarded("making an executor", [&] { return make_executor(impl_, std::make_shared<Known>()); });
}

std::vector<IoInfo> Session::inputs() const { return infos(*impl_->generic, impl_->generic->inputs); }
std::vector<IoInfo> Session::outputs() const { return infos(*impl_->generic, impl_->generic->outputs); }

Result<std::vector<Tensor>> Session::run(const std::map<std::string, Tensor>& inputs, RunStats* stats,
                                         std::vector<Tensor>* outputs) {
  return guarded("running the model", [&] { return specialize_and_run(inputs, stats, outputs); });
}

Result<std::vector<Tensor>> Session::specialize_and_run(const std::map<std::string, Tensor>& inputs, RunStats* stats,
                                                        std::vector<Tensor>* outputs) {
  const Stopwatch watch;
  RunStats before;
  if (!impl_->executor) return Diagnostic(ErrorCode::Usage, "the session was opened for compiling only");
  TESSERA_ASSIGN(auto alone, impl_->in_use.begin("the session", kOneThread));
  if (!impl_->options.specialize.empty()) TESSERA_TRY(impl_->specialize(inputs, before));
  auto result = impl_->executor->run(inputs, stats, outputs);
  if (!stats) return result;
  if (before.recompile_ms > 0) {
    stats->recompiles += before.recompiles;
    stats->recompile_ms += before.recompile_ms;
    stats->begin_ms -= watch.ms() - stats->total_ms;
    stats->total_ms = watch.ms();
  }
  const auto& ran = impl_->executor->variants()[static_cast<size_t>(stats->variant)];
  std::lock_guard lock(impl_->mutex);
  if (const size_t i = impl_->variant_of(*ran); i < impl_->variants.size()) stats->variant = static_cast<int>(i);
  return result;
}

Status Session::run_on_device(const std::map<std::string, DeviceTensor>& inputs, std::span<const DeviceTensor> outputs,
                              void* stream, RunStats* stats) {
  if (!impl_->executor) return Diagnostic(ErrorCode::Usage, "the session was opened for compiling only");
  TESSERA_ASSIGN(auto alone, impl_->in_use.begin("the session", kOneThread));
  return impl_->executor->run_on_device(inputs, outputs, stream, stats);
}

Status Session::call(std::span<const DeviceTensor> inputs, const OutputAllocator& outputs, void* stream,
                     RunStats* stats) {
  if (!impl_->executor) return Diagnostic(ErrorCode::Usage, "the session was opened for compiling only");
  TESSERA_ASSIGN(auto alone, impl_->in_use.begin("the session", kOneThread));
  return impl_->executor->call(inputs, outputs, stream, stats);
}

Result<std::vector<DeviceTensor>> Session::output_sizes(const std::map<std::string, DeviceTensor>& inputs,
                                                        RunStats* stats) {
  if (!impl_->executor) return Diagnostic(ErrorCode::Usage, "the session was opened for compiling only");
  TESSERA_ASSIGN(auto alone, impl_->in_use.begin("the session", kOneThread));
  return impl_->executor->output_sizes(inputs, stats);
}

Status Session::wait() {
  if (!impl_->executor) return Diagnostic(ErrorCode::Usage, "the session was opened for compiling only");
  TESSERA_ASSIGN(auto alone, impl_->in_use.begin("the session", kOneThread));
  return impl_->executor->wait();
}

std::vector<std::shared_ptr<const SessionVariant>> Session::variants() const {
  std::lock_guard lock(impl_->mutex);
  return {impl_->variants.begin(), impl_->variants.end()};
}
std::string Session::report(const std::map<std::string, int64_t>& sizes, bool thorough) const {
  return impl_->source->report(*variants().front(), sizes, thorough);
}

Status Session::save(const std::string& path, bool embed_weights, const std::map<std::string, int64_t>& sizes) const {
  return impl_->source->save(variants(), path, embed_weights, sizes);
}

const ModelInfo& Session::model_info() const { return impl_->source->info(); }
const std::vector<std::string>& Session::model_warnings() const { return impl_->source->warnings(); }
double Session::import_ms() const { return impl_->source->import_ms(); }
CompileTotals Session::compile_totals() const {
  std::lock_guard lock(impl_->totals_mutex);
  return impl_->totals;
}

} // namespace tessera
