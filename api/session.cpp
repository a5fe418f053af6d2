#include "api/session.h"
#include "api/background.h"
#include "api/variant.h"
#include "codegen/driver/bodies.h"
#include "codegen/driver/load.h"
#include "codegen/driver/plan_file.h"
#include "codegen/driver/steering.h"
#include "codegen/tune/target.h"
#include "frontend/fx/importer.h"
#include "frontend/model.h"
#include "graph/support/guarded.h"
#include "graph/support/in_use.h"
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"
#include "report/report.h"
#include "runtime/guards.h"
#include "runtime/memory_account.h"
#include <algorithm>
#include <mutex>
#include <set>

namespace tessera {
namespace {

using Sizes = std::map<std::string, int64_t>; // of a call, by symbol

std::string text_of(const Sizes& sizes) {
  std::string text;
  for (const auto& [symbol, size] : sizes) text += (text.empty() ? "" : ", ") + symbol + "=" + std::to_string(size);
  return text;
}

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

// The compile that made an executable: this one, or that of a body of its control flow.
const Compiled* made_by(const Compiled& compiled, const Executable& executable) {
  if (compiled.executable.get() == &executable) return &compiled;
  for (const auto& [group, control] : compiled.bodies)
    for (const auto& body : control->bodies)
      if (const Compiled* found = made_by(*body.compiled, executable)) return found;
  return nullptr;
}

// The executables that an executor has been given. Its recompile function must not offer them again.
using Known = std::set<const Executable*>; // only queried for membership

// Whether it is the variant's, or was before better kernels were found.
bool holds(const SessionVariant& v, const Executable& executable) {
  auto is = [&](const std::shared_ptr<const Executable>& e) { return e.get() == &executable; };
  return is(v.compiled.executable) || std::any_of(v.earlier.begin(), v.earlier.end(), is);
}
// Whether an executor has not been given the variant yet; from now on it has.
bool is_new(const SessionVariant& v, Known& has) {
  if (std::any_of(v.earlier.begin(), v.earlier.end(), [&](const auto& e) { return has.contains(e.get()); }))
    return false; // it takes the successor by itself
  return has.insert(v.compiled.executable.get()).second;
}

} // namespace

struct Session::Impl {
  std::string path;
  std::shared_ptr<const ProgramSource> program; // in the place of a file, or null
  SessionOptions options;
  ModelInfo info;
  std::vector<std::string> warnings; // of the import
  double import_ms = 0;
  std::shared_ptr<TunedRecords> tuned; // that options.compile.tuned shows, if it is this session's own
  InUse in_use;                        // of calls: run(), run_on_device(), output_sizes()
  mutable std::mutex mutex;            // of variants: executors on several threads may recompile
  std::vector<std::shared_ptr<SessionVariant>> variants;
  mutable std::mutex totals_mutex; // not held while anything is compiled
  CompileTotals totals;
  std::shared_ptr<const Executable> generic; // of the first variant
  // Of the thread that the session belongs to:
  std::unique_ptr<Executor> executor;
  std::shared_ptr<Known> known;
  std::set<std::string> failed_labels; // specializations that did not compile
  // With tuning in the background:
  std::shared_ptr<BackgroundTuner> tuner;
  std::shared_ptr<Successors> successors;

  // What of the requested specialization these sizes have.
  struct Wanted {
    std::string label;
    std::vector<std::pair<std::string, Specialization>> conditions;
  };
  [[nodiscard]] Wanted wanted(const Sizes& sizes) const {
    Wanted out;
    for (const auto& [symbol, how] : options.specialize) {
      auto size = sizes.find(symbol);
      bool exact = how.kind == Specialization::Kind::Exact;
      if (size == sizes.end() || (!exact && size->second % how.divisor != 0)) continue;
      out.conditions.emplace_back(symbol, how);
      out.label += (out.label.empty() ? "" : ", ") + symbol +
                   (exact ? "=" + std::to_string(size->second) : "%" + std::to_string(how.divisor) + "=0");
    }
    return out;
  }

  // Another variant, counted. The mutex is held, except by open().
  Result<std::shared_ptr<SessionVariant>> make(const Sizes& sizes, const Wanted* specialization, bool of_call) {
    const Stopwatch watch;
    auto made = make_variant(sizes, specialization, of_call);
    std::lock_guard lock(totals_mutex);
    totals.variants = static_cast<int64_t>(variants.size());
    totals.failures += made.ok() ? 0 : 1;
    if (made.ok() && (*made)->compiled.graph) {
      ++totals.compiles;
      const CompileReport& report = (*made)->compiled.report;
      totals.kernels += report.cache_hits + report.cache_misses;
      totals.cached_kernels += report.cache_hits;
    }
    totals.ms += watch.ms();
    return made;
  }

  // Imports anew (a graph is consumed by its compile) and compiles, with the sizes of the requesting call as hints.
  Result<std::shared_ptr<SessionVariant>> make_variant(const Sizes& sizes, const Wanted* specialization, bool of_call) {
    const Stopwatch watch;
    if (!program && is_compiled_file(path)) {
      if (!options.allow_compiled_file)
        return Diagnostic(ErrorCode::Usage, path + " is a compiled file; this needs the model itself")
            .note("give the model that it was compiled from");
      if (!sizes.empty() || specialization)
        return Diagnostic(ErrorCode::UnsupportedFeature,
                          path + " holds one compiled variant, which does not fit these sizes: " + text_of(sizes))
            .note("open the model itself, so that another variant can be compiled");
      auto variant = std::make_shared<SessionVariant>();
      variant->label = "compiled file";
      TESSERA_ASSIGN(variant->compiled.executable, load_compiled(path));
      const std::string& target = variant->compiled.executable->target;
      if (!(target + " ").starts_with(options.compiled_for + (options.compiled_for.empty() ? "" : " ")))
        return Diagnostic(ErrorCode::Usage,
                          path + " is a compiled file for '" + target + "', not for '" + options.compiled_for + "'")
            .note("compile the model for that device");
      if (!options.specialize.empty())
        return Diagnostic(ErrorCode::Usage, path + " is a compiled file, which cannot be specialized")
            .note("open the model itself");
      import_ms = watch.ms();
      variant->compiled.report.import_ms = import_ms;
      variants.push_back(variant);
      return variant;
    }
    ImportOptions import = options.import;
    for (const auto& [symbol, size] : sizes) import.dim_hints[symbol] = size;
    import.of_call = import.of_call || of_call;
    auto imported = program ? fx::import_program(*program, import) : import_model(path, import);
    if (!imported.ok() && imported.error().code == ErrorCode::MissingValues && !options.compile_only && !program) {
      import.undetermined = true; // the first call reports them
      auto waiting = import_model(path, import);
      import.undetermined = waiting.ok();
      if (waiting.ok()) imported = std::move(waiting);
    }
    TESSERA_ASSIGN(auto model, std::move(imported));
    const double took = watch.ms();
    if (variants.empty()) {
      import_ms = took;
      info = model.info;
      this->warnings = model.warnings;
    }
    auto variant = std::make_shared<SessionVariant>();
    variant->fits_no_call = import.undetermined;
    variant->label = sizes.empty() ? "generic" : "for " + text_of(sizes);
    variant->as_loops = options.compile.as_loops;
    if (!variant->as_loops.empty())
      variant->label += ", " + std::to_string(variant->as_loops.size()) + " nodes as loops";
    if (specialization) {
      ShapeEnv& env = model.graph.env();
      for (const auto& [symbol, how] : specialization->conditions) {
        auto s = env.find(symbol);
        if (!s) return Diagnostic(ErrorCode::Usage, "the model has no symbolic dimension '" + symbol + "'");
        auto condition =
            how.kind == Specialization::Kind::Exact ? sym_eq(*s, sizes.at(symbol)) : sym_eq(mod(*s, how.divisor), 0);
        Location where;
        where.file = path;
        TESSERA_TRY(env.require(condition, GuardClass::Assumed, "specialized on request", where));
      }
      model.graph.simplify_shapes();
      variant->label = specialization->label;
      variant->specialized = true;
      variant->conditions = static_cast<int>(specialization->conditions.size());
    }
    if (variants.empty()) TESSERA_TRY(check_operators(model.graph, options.compile));
    TESSERA_ASSIGN(variant->compiled, compile(std::move(model.graph), options.compile));
    variant->compiled.report.import_ms = took;
    auto& warnings = variant->compiled.report.cache_warnings;
    if (tuned) // a folder that neither can use is reported once
      for (auto& w : tuned->warnings())
        if (std::find(warnings.begin(), warnings.end(), w) == warnings.end()) warnings.push_back(std::move(w));
    if (variants.empty())
      for (const std::string& w : this->warnings) TESSERA_LOGF(LogChannel::Warnings, w);
    for (const std::string& w : warnings) TESSERA_LOGF(LogChannel::Warnings, w);
    variants.push_back(variant);
    return variant;
  }

  // Called by an executor when an assumption of all its variants is violated, and before it falls back from a
  // specialized variant to its last one. Nothing: the executor has a variant that fits, or gets none.
  Result<std::shared_ptr<const Executable>> recompile(const GuardMiss& miss, Known& has) {
    std::lock_guard lock(mutex);
    if (!miss.refused.empty()) return without_calls(miss, has);
    bool fits = false;
    for (const auto& v : variants) {
      if (v->fits_no_call || missed(*v->compiled.executable, miss.sizes)) continue;
      if (is_new(*v, has)) return v->compiled.executable; // another executor's
      fits = true;
    }
    if (fits) return std::shared_ptr<const Executable>();
    TESSERA_ASSIGN(auto variant, make(miss.sizes, nullptr, true));
    has.insert(variant->compiled.executable.get());
    return variant->compiled.executable;
  }

  // A variant in which the nodes of library calls that were refused are loops. The mutex is held.
  Result<std::shared_ptr<const Executable>> without_calls(const GuardMiss& miss, Known& has) {
    std::set<std::string> nodes;
    for (const auto& v : variants) {
      const Compiled* from = holds(*v, *miss.refused_in) ? &v->compiled : made_by(v->compiled, *miss.refused_in);
      if (!from || !from->graph) continue;
      for (const Group* group : flat_groups(from->report.plan)) // the steps of an attention, too
        if (group->kind == Group::Kind::Library &&
            std::find(miss.refused.begin(), miss.refused.end(), group->name) != miss.refused.end())
          nodes.insert(from->graph->node(group->call.node).location.node);
    }
    nodes.erase("");
    if (nodes.empty()) return std::shared_ptr<const Executable>();
    for (const auto& v : variants) // another executor's
      if (!v->specialized && std::includes(v->as_loops.begin(), v->as_loops.end(), nodes.begin(), nodes.end()) &&
          is_new(*v, has))
        return v->compiled.executable;
    options.compile.as_loops.insert(nodes.begin(), nodes.end());
    TESSERA_ASSIGN(auto variant, make({}, nullptr, true));
    has.insert(variant->compiled.executable.get());
    return variant->compiled.executable;
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
    const Wanted want = wanted(*sizes);
    if (want.conditions.empty() || failed_labels.contains(want.label)) return {};
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
      if (const auto g = v->specialized ? missed(*v->compiled.executable, *sizes) : std::nullopt)
        why = "variant " + v->label + " missed " + readable(g->condition) + " (" + g->reason + ")";
    const Stopwatch watch;
    auto variant = make(*sizes, &want, true);
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
    known->insert(variant.compiled.executable.get());
    return executor->add_variant(variant.compiled.executable, at);
  }

  // The variant of an executable, or of one that it has replaced. The mutex is held.
  [[nodiscard]] size_t variant_of(const Executable& executable) const {
    auto found = std::find_if(variants.begin(), variants.end(), [&](const auto& v) { return holds(*v, executable); });
    return static_cast<size_t>(found - variants.begin());
  }

  // ---- for the tuner's thread
  [[nodiscard]] std::shared_ptr<const Compiled> compiled(const Executable& executable) {
    std::lock_guard lock(mutex);
    const size_t i = variant_of(executable);
    if (i == variants.size()) return nullptr;
    return {variants[i], &variants[i]->compiled};
  }
  // The variant once more, with the schedules that are known by now; executors take it with their next call.
  Status renew(const Executable& executable, const CompileOptions& compile) {
    const auto before = compiled(executable);
    if (!before) return {};
    TESSERA_ASSIGN(Compiled again, compile_again(*before, compile)); // without the mutex: calls may want it
    std::lock_guard lock(mutex);
    auto& variant = variants[variant_of(executable)];
    auto renewed = std::make_shared<SessionVariant>(*variant);
    renewed->earlier.push_back(before->executable);
    renewed->compiled = std::move(again);
    renewed->compiled.report.import_ms = before->report.import_ms;
    successors->add(*before->executable, renewed->compiled.executable);
    variant = std::move(renewed);
    return {};
  }
  Status start_tuning(const std::shared_ptr<Impl>& self) {
    double share = options.tune_share.value_or(0);
    TESSERA_TRY(check_tune_share(share, "tune_share"));
    if (!options.tune_share) {
      TESSERA_ASSIGN(share, tune_share_of_environment());
    }
    if (share == 0 || !tuned || options.compile_only) return {};
    BackgroundOptions background = options.background ? *options.background : BackgroundOptions{};
    background.share = share;
    successors = std::make_shared<Successors>();
    BackgroundTuner::Hooks hooks;
    std::weak_ptr<Impl> weak = self;
    hooks.compiled = [weak](const Executable& e) -> std::shared_ptr<const Compiled> {
      auto impl = weak.lock();
      return impl ? impl->compiled(e) : nullptr;
    };
    hooks.renew = [weak](const Executable& e, const CompileOptions& compile) -> Status {
      auto impl = weak.lock();
      return impl ? impl->renew(e, compile) : Status();
    };
    tuner = std::make_shared<BackgroundTuner>(options.compile, tuned, std::move(background), std::move(hooks));
    return {};
  }

  Status check_options() const {
    std::set<std::string> symbols;
    for (const auto& b : generic->inputs)
      for (const auto& d : generic->buffers[static_cast<size_t>(b.buffer)].shape)
        if (d.is_symbol()) symbols.insert(d.symbol_name());
    for (const auto& [symbol, how] : options.specialize) {
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
    known->insert(v->compiled.executable.get());
    executables.push_back(v->compiled.executable);
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
  impl.program = std::move(program);
  impl.options = std::move(options);
  ExecutorOptions& run = impl.options.executor;
  if (!run.memory) run.memory = std::make_shared<MemoryAccount>(run.memory_limit);
  if (!run.pool) run.pool = ThreadPool::create(impl.options.compile.threads);
  impl.options.compile.threads = run.pool->threads();
  CompileOptions& compile = impl.options.compile;
  compile.records = impl.options.use_tuned;
  if (impl.options.use_tuned && !compile.tuned)
    if (auto target = tuned_target(compile))
      compile.tuned = impl.tuned = std::make_shared<TunedRecords>(compile.cache_dir, std::move(*target));
  TESSERA_ASSIGN(auto generic, impl.make({}, nullptr, false));
  impl.generic = generic->compiled.executable;
  TESSERA_TRY(impl.check_options());
  impl.known = std::make_shared<Known>();
  if (impl.options.compile_only) return session;
  TESSERA_TRY(impl.start_tuning(session->impl_));
  auto executor = make_executor(session->impl_, impl.known);
  if (!executor.ok() && !impl.variants.front()->compiled.graph)
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
  const auto variant = variants().front();
  const Compiled& compiled = variant->compiled;
  if (!compiled.graph) return compiled.executable->report;
  return report_text(compiled, impl_->info, {impl_->path, variant->label, sizes, thorough, thorough});
}

Status Session::save(const std::string& path, bool embed_weights, const std::map<std::string, int64_t>& sizes) const {
  Executable executable = *variants().front()->compiled.executable; // constants are views
  executable.report = report(sizes, true);
  return save_executable(executable, path, embed_weights);
}

const ModelInfo& Session::model_info() const { return impl_->info; }
const std::vector<std::string>& Session::model_warnings() const { return impl_->warnings; }
double Session::import_ms() const { return impl_->import_ms; }
CompileTotals Session::compile_totals() const {
  std::lock_guard lock(impl_->totals_mutex);
  return impl_->totals;
}

} // namespace tessera
