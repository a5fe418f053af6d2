#include "api/session.h"
#include "api/session/adaptive.h"
#include "api/session/warm_up.h"
#include "base/absolute_path.h"
#include "base/blocks_of_bytes.h"
#include "base/environment.h"
#include "base/fork.h"
#include "base/guarded.h"
#include "base/in_use.h"
#include "codegen/load/load.h"
#include "runtime/cache/cache.h"
#include "runtime/memory_account.h"
#include "symbols/input_rank.h"

namespace tessera {
namespace {

std::vector<IoInfo> infos(const Executable& e, std::span<const Binding> bindings) {
  std::vector<IoInfo> out;
  for (const auto& b : bindings) {
    const auto& buffer = e.buffers[static_cast<size_t>(b.buffer)];
    out.push_back(
        {b.name, buffer.dtype, buffer.shape, b.indexed, b.list, e.env->find(rank_symbol(b.name)).has_value()});
  }
  return out;
}

// Error Usage: options that contradict each other. What `deterministic` implies is set.
Status complete(SessionOptions& o) {
  if (o.policy == VariantPolicy::Adaptive && !(o.compile_share > 0 && o.compile_share <= 1))
    return Diagnostic(ErrorCode::Usage, "compile_share: a share of the time is a number above 0, at most 1");
  if (!o.deterministic) return {};
  if (o.policy == VariantPolicy::Adaptive)
    return Diagnostic(ErrorCode::Usage, "the policy adaptive replaces code between calls, which deterministic excludes")
        .note("take the policy generic or exact");
  if (o.tune_share.value_or(0) > 0)
    return Diagnostic(ErrorCode::Usage, "a tune share replaces kernels between calls, which deterministic excludes")
        .note("leave one of them out");
  o.compile.deterministic = true;
  o.tune_share = 0;
  o.executor.wait_for_plans = true;
  return {};
}

} // namespace

std::optional<VariantPolicy> parse_policy(std::string_view name) {
  if (name == "generic") return VariantPolicy::Generic;
  if (name == "adaptive") return VariantPolicy::Adaptive;
  if (name == "exact") return VariantPolicy::Exact;
  return std::nullopt;
}

struct Session::Impl {
  const OfProcess process;
  std::string path;
  std::shared_ptr<VariantPool> pool;
  std::shared_ptr<BackgroundWork> work; // tuning, compiling in the background; null: none
  InUse in_use;                         // of calls: run(), run_on_device(), output_sizes()
  std::unique_ptr<Executor> executor;   // of the thread that the session belongs to

  Status start_work() {
    BackgroundHooks hooks;
    std::weak_ptr<VariantPool> weak = pool;
    hooks.variant = [weak](const Executable& e) -> std::shared_ptr<const SessionVariant> {
      auto p = weak.lock();
      return p ? p->variant_with(e) : nullptr;
    };
    hooks.replace = [weak](const SessionVariant& before, std::shared_ptr<SessionVariant> better) {
      if (auto p = weak.lock()) p->replace(before, std::move(better));
    };
    if (pool->variants().front()->from_file) return {}; // nothing can be compiled
    std::vector<std::shared_ptr<BackgroundWork>> all;
    TESSERA_ASSIGN(auto tuning, pool->source().start_tuning(std::move(hooks)));
    if (tuning) all.push_back(std::move(tuning));
    if (pool->options().policy == VariantPolicy::Adaptive) all.push_back(compile_in_background(pool));
    work = together(std::move(all));
    pool->reports_to(work);
    return {};
  }

  // The executor of the session's own calls, for one of them.
  struct Use {
    InUse::Guard alone;
    Executor* executor;
    Executor* operator->() const { return executor; }
  };
  Result<Use> use() {
    if (!executor) return Diagnostic(ErrorCode::Usage, "the session was opened for compiling only");
    TESSERA_ASSIGN(auto alone, in_use.begin("the session",
                                            "each thread takes a session or an executor (new_executor()) of its own"));
    return Use{std::move(alone), executor.get()};
  }

  Result<std::unique_ptr<Executor>> make_executor() const {
    ExecutorOptions options = pool->options().executor;
    options.before_others = work != nullptr;
    return tessera::make_executor(pool, std::move(options));
  }
};

Session::Session() : impl_(std::make_shared<Impl>()) {}
Session::~Session() {
  const InsideLibrary inside;
  if (!impl_->process.here()) { // a child of fork(): threads that it would wait for are its parent's
    new std::shared_ptr<Impl>(std::move(impl_));
    return;
  }
  if (impl_->pool) impl_->pool->close();
  if (impl_->work) impl_->work->stop(); // executors that live on only count
  // Free pages of the heap go back to the system where that is worth a walk over it.
  constexpr int64_t kWorthReturning = int64_t{4} << 20; // bytes
  const bool worth = impl_->pool && impl_->pool->options().executor.memory->peak() >= kWorthReturning;
  impl_.reset();
  if (worth) return_free_memory();
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
  TESSERA_TRY(check_environment());
  TESSERA_TRY(complete(options));
  if (const std::string cache = cache_directory(options.compile.cache_dir); !cache.empty())
    options.compile.cache_dir = absolute_path(cache);
  for (const auto& [symbol, range] : options.warm_up)
    if (range.only) {
      if (options.allow_compiled_file && is_compiled_file(path) && !program)
        return Diagnostic(ErrorCode::Usage,
                          path + " is a compiled file, whose sizes cannot be narrowed to '" + symbol + "=only:...'")
            .note("give the range to 'tessera compile', or leave 'only:' out");
      options.import.dim_ranges[symbol] = {range.min, range.max};
    }
  ExecutorOptions& run = options.executor;
  if (!run.memory) run.memory = std::make_shared<MemoryAccount>(run.memory_limit);
  if (!run.pool) run.pool = ThreadPool::create(options.compile.threads);
  if (!run.cache && options.compile.cache) run.cache = std::make_shared<Cache>(options.compile.cache_dir, true);
  options.compile.threads = run.pool->threads();
  auto closed = std::make_shared<std::atomic<bool>>(false);
  options.compile.cancelled = [closed, cancelled = options.compile.cancelled] {
    return closed->load(std::memory_order_relaxed) || (cancelled && cancelled());
  };
  impl.pool = std::make_shared<VariantPool>(make_model_source(path, std::move(program), options), options, closed);
  TESSERA_TRY(impl.pool->open());
  const SizeRanges& ranges = impl.pool->options().warm_up;
  if (options.compile_only) {
    if (!ranges.empty()) TESSERA_TRY(tessera::warm_up_ranges(*impl.pool, ranges, {}, nullptr));
    return session;
  }
  TESSERA_TRY(impl.start_work());
  auto executor = impl.make_executor();
  if (!executor.ok() && impl.pool->variants().front()->from_file)
    return std::move(executor).take_error().note(path + " is compiled for '" + impl.pool->generic()->target + "'");
  TESSERA_ASSIGN(impl.executor, std::move(executor));
  if (!ranges.empty()) TESSERA_TRY(session->warm_up_ranges(ranges));
  return session;
}

void Session::settle_tuning() {
  if (impl_->work) impl_->work->wait_idle();
}

Result<std::unique_ptr<Executor>> Session::new_executor() {
  return guarded("making an executor", [&] { return impl_->make_executor(); });
}

std::vector<IoInfo> Session::inputs() const {
  const Executable& e = *impl_->pool->generic();
  return infos(e, std::span(e.inputs).first(e.call_inputs()));
}
std::vector<IoInfo> Session::outputs() const {
  const Executable& e = *impl_->pool->generic();
  return infos(e, std::span(e.outputs).first(e.call_outputs()));
}
std::vector<IoInfo> Session::states() const {
  const Executable& e = *impl_->pool->generic();
  std::vector<IoInfo> out = infos(e, std::span(e.inputs).subspan(e.call_inputs()));
  for (size_t s = 0; s < out.size(); ++s) out[s].name = e.constants[static_cast<size_t>(e.states[s])].name;
  return out;
}

Result<Tensor> Session::read_state(size_t index) {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->read_state(index);
}

Status Session::write_state(size_t index, const Tensor& value) {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->write_state(index, value);
}

Status Session::reset_states() {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->reset_states();
}

Result<std::vector<Tensor>> Session::run(const std::map<std::string, Tensor>& inputs, RunStats* stats,
                                         std::vector<Tensor>* outputs) {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->run(inputs, stats, outputs);
}

Status Session::run_on_device(const std::map<std::string, DeviceTensor>& inputs, std::span<const DeviceTensor> outputs,
                              void* stream, RunStats* stats) {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->run_on_device(inputs, outputs, stream, stats);
}

Status Session::call(std::span<const DeviceTensor> inputs, const OutputAllocator& outputs, void* stream,
                     RunStats* stats, const ScratchAllocator* scratch, DonatedInputs* donated) {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->call(inputs, outputs, stream, stats, scratch, donated);
}

Result<std::vector<DeviceTensor>> Session::output_sizes(const std::map<std::string, DeviceTensor>& inputs,
                                                        RunStats* stats) {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->output_sizes(inputs, stats);
}

Status Session::warm_up(const std::map<std::string, Tensor>& inputs, RunStats* stats) {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->warm_up(inputs, stats);
}

Status Session::warm_up_ranges(const SizeRanges& ranges, const std::map<std::string, Tensor>& inputs,
                               Executor* executor) {
  for (const auto& [symbol, range] : ranges)
    if (range.only && !impl_->pool->options().import.dim_ranges.contains(symbol))
      return Diagnostic(ErrorCode::Usage, "'" + symbol + "=only:...' decides what is compiled, and comes too late here")
          .note("give it when the model is opened");
  return guarded("warming up", [&]() -> Status {
    if (executor != nullptr) return tessera::warm_up_ranges(*impl_->pool, ranges, inputs, executor);
    TESSERA_ASSIGN(auto own, impl_->use());
    return tessera::warm_up_ranges(*impl_->pool, ranges, inputs, own.executor);
  });
}

Status Session::trim() {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->trim();
}

Status Session::wait() {
  TESSERA_ASSIGN(auto executor, impl_->use());
  return executor->wait();
}

std::vector<std::shared_ptr<const SessionVariant>> Session::variants() const { return impl_->pool->variants(); }
std::string Session::report(const std::map<std::string, int64_t>& sizes, bool thorough) const {
  return impl_->pool->source().report(*variants().front(), sizes, thorough);
}

Status Session::save(const std::string& path, bool embed_weights, const std::map<std::string, int64_t>& sizes) const {
  return impl_->pool->source().save(variants(), path, embed_weights, sizes);
}

const ModelInfo& Session::model_info() const { return impl_->pool->source().info(); }
const std::vector<std::string>& Session::model_warnings() const { return impl_->pool->source().warnings(); }
double Session::import_ms() const { return impl_->pool->source().import_ms(); }
CompileTotals Session::compile_totals() const { return impl_->pool->totals(); }

} // namespace tessera
