// The source of a session that compiles: model or program -> import -> compile, or its plan from the cache.
#include "api/compiler/background.h"
#include "api/compiler/model_compiler.h"
#include "api/compiler/plan_cache.h"
#include "api/session/file_variants.h"
#include "api/session/variant.h"
#include "base/key_text.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "codegen/driver/bodies.h"
#include "codegen/load/load.h"
#include "measure/tune/target.h"
#include "report/report.h"
#include <algorithm>
#include <mutex>

namespace tessera {
namespace {

// The compile that made an executable: that of `executable`, whose compile is `compiled`, or of a body of its control
// flow. One that comes from the cache has its own executables, in the same order.
const Compiled* made_by(const Compiled& compiled, const Executable& executable, const Executable& wanted) {
  if (&executable == &wanted) return &compiled;
  auto control = compiled.bodies.begin();
  for (const Step& step : executable.steps) {
    const auto* c = std::get_if<ControlStep>(&step);
    if (!c || control == compiled.bodies.end()) continue;
    const auto& bodies = (control++)->second->bodies;
    for (size_t b = 0; b < std::min(bodies.size(), c->bodies.size()); ++b)
      if (const Compiled* found = made_by(*bodies[b].compiled, *c->bodies[b].executable, wanted)) return found;
  }
  return nullptr;
}

class CompiledSource final : public ModelSource {
public:
  CompiledSource(std::string path, std::shared_ptr<const ProgramSource> program, SessionOptions options)
      : options_(std::move(options)) {
    CompileOptions& compile = options_.compile;
    compile.records = options_.use_tuned;
    std::shared_ptr<TunedRecords> tuned;
    if (options_.use_tuned && !compile.tuned)
      if (auto target = tuned_target(compile))
        compile.tuned = tuned = std::make_shared<TunedRecords>(compile.cache_dir, std::move(*target));
    compiler_ = std::make_shared<const ModelCompiler>(std::move(path), std::move(program), options_, std::move(tuned));
  }

  Result<std::vector<std::shared_ptr<SessionVariant>>> open() override {
    const Stopwatch watch;
    if (!compiler_->program() && is_compiled_file(path())) {
      TESSERA_ASSIGN(auto all, open_file_variants(path(), options_));
      from_file_ = true;
      import_ms_ = watch.ms();
      for (const auto& variant : all) {
        Compiled compiled;
        compiled.executable = variant->executable;
        compiled.report.import_ms = import_ms_;
        variant->compiled = std::make_shared<const Compiled>(std::move(compiled));
      }
      return all;
    }
    TESSERA_ASSIGN(auto generic, make({}));
    std::vector<std::shared_ptr<SessionVariant>> all;
    all.push_back(std::move(generic));
    opened_ = true;
    return all;
  }

  Result<std::shared_ptr<SessionVariant>> make(const CompileRequest& wanted) override {
    if (from_file_) return no_file_variant(path(), wanted.sizes);
    CompileRequest request = wanted;
    request.check_operators = !opened_;
    auto variant = std::make_shared<SessionVariant>(described(request, compiler_->compile_options(request)));
    ThreadPool* pool = request.background ? nullptr : options_.executor.pool.get();
    const PlanRequest wanted_plan = plan_request(request);
    PlanCache plans(wanted_plan, path() + ", " + variant->label, pool);
    const std::shared_ptr<ModelContent> model = plans.usable() ? content(plans.cache(), pool) : nullptr;
    // Who wants texts of a compile, or nothing else than it, gets one; so does tuning, which begins with it.
    const bool needs_texts = options_.compile_only || options_.compile.keep_tiles || options_.compile.keep_texts ||
                             wants_background_tuning(options_);
    if (auto plan = model && !needs_texts ? plans.find(*model) : std::nullopt) {
      for (const std::string& w : plans.warnings()) TESSERA_LOGF(LogChannel::Warnings, w);
      take(*variant, std::move(*plan), request, model);
      return variant;
    }
    TESSERA_ASSIGN(CompiledModel made, compiler_->compile(request));
    CompileReport& report = made.compiled.report;
    for (auto& w : plans.warnings())
      if (std::find(report.cache_warnings.begin(), report.cache_warnings.end(), w) == report.cache_warnings.end())
        report.cache_warnings.push_back(std::move(w));
    variant->kernels = report.cache_hits + report.cache_misses;
    variant->cached_kernels = report.cache_hits;
    variant->fits_no_call = made.fits_no_call;
    variant->contained = static_cast<int64_t>(report.contained.size());
    variant->executable = made.compiled.executable;
    // Schedules may have been measured while it was compiled. A detour around a failure is no plan to keep.
    if (model && !made.fits_no_call && report.plan_warnings.empty() && report.contained.empty() &&
        measured() == wanted_plan.measured)
      plans.store(*model, {variant->executable, made.info, made.warnings, made.weight_files, variant->kernels},
                  made.copied_weights);
    imported(std::move(made.info), std::move(made.warnings), made.import_ms);
    for (const std::string& w : report.cache_warnings) TESSERA_LOGF(LogChannel::Warnings, w);
    variant->compiled = std::make_shared<const Compiled>(std::move(made.compiled));
    return variant;
  }

  std::set<std::string> nodes_of(const SessionVariant& variant, const Executable& in,
                                 const std::vector<std::string>& steps) const override {
    std::set<std::string> nodes;
    const bool earlier =
        std::any_of(variant.earlier.begin(), variant.earlier.end(), [&](const auto& e) { return e.get() == &in; });
    const std::shared_ptr<const Compiled> compiled = variant.compiled;
    const Compiled* from = earlier ? compiled.get() : made_by(*compiled, *variant.executable, in);
    if (!from || !from->graph) return nodes;
    for (const Group* group : flat_groups(from->report.plan)) // the steps of an attention, too
      if (group->kind == Group::Kind::Library && std::find(steps.begin(), steps.end(), group->name) != steps.end())
        nodes.insert(from->graph->node(group->call.node).location.node);
    nodes.erase("");
    return nodes;
  }

  std::string report(const SessionVariant& variant, const Sizes& sizes, bool thorough) const override {
    if (!variant.compiled->graph) return variant.executable->report;
    return report_text(*variant.compiled, info_, {path(), variant.label, sizes, thorough, thorough});
  }

  Status save(const std::vector<std::shared_ptr<const SessionVariant>>& variants, const std::string& path,
              bool embed_weights, const Sizes& sizes) const override {
    std::vector<FileExecutable> all;
    for (const auto& v : variants)
      if (!v->fits_no_call || all.empty()) all.push_back({v->label, v->conditions, v->executable});
    Executable first = *all.front().executable; // constants are views
    first.report = report(*variants.front(), sizes, true);
    all.front().executable = std::make_shared<const Executable>(std::move(first));
    return save_executables(all, path, embed_weights);
  }

  double loss_us(const SessionVariant& variant, const Sizes& sizes) const override {
    return variant.compiled->graph ? lost_to_unknown_sizes_us(*variant.compiled, sizes) : 0;
  }

  Result<std::shared_ptr<BackgroundWork>> start_tuning(BackgroundHooks hooks) override {
    return tune_in_background(options_, compiler_->records(), std::move(hooks));
  }

private:
  [[nodiscard]] const std::string& path() const { return compiler_->path(); }

  // Keeps the results of the first import.
  void imported(ModelInfo info, std::vector<std::string> warnings, double ms) {
    if (opened_) return;
    import_ms_ = ms;
    info_ = std::move(info);
    warnings_ = std::move(warnings);
    for (const std::string& w : warnings_) TESSERA_LOGF(LogChannel::Warnings, w);
  }

  [[nodiscard]] std::string measured() const {
    if (!compiler_->records()) return "";
    const auto all = compiler_->records()->all();
    return "records " + (all.empty() ? "" : print_records(all));
  }
  [[nodiscard]] PlanRequest plan_request(const CompileRequest& request) const {
    KeyText conditions;
    if (request.specialization)
      for (const auto& [symbol, how] : request.specialization->of) {
        const auto& [kind, divisor, size] = how;
        conditions.add(symbol, std::pair(kind, std::pair(divisor, size)));
      }
    return {compiler_->compile_options(request), compiler_->import_options(request), conditions.str(), measured()};
  }

  // The model as it is now; null where it cannot be read, of which the import says more.
  std::shared_ptr<ModelContent> content(Cache& cache, ThreadPool* pool) {
    std::lock_guard lock(content_mutex_);
    if (!content_ || !content_->unchanged(pool)) {
      auto read = compiler_->program() ? ModelContent::of_program(compiler_->program(), pool)
                                       : ModelContent::of_file(compiler_->file(), cache, pool);
      if (!read.ok()) return nullptr;
      content_ = std::move(*read);
    }
    return content_;
  }

  void take(SessionVariant& variant, KeptPlan plan, const CompileRequest& request,
            const std::shared_ptr<ModelContent>& model) {
    variant.from_plan = true;
    variant.executable = plan.executable;
    variant.kernels = variant.cached_kernels = plan.kernels;
    variant.compiled = LaterCompiled([compiler = compiler_, executable = plan.executable, request, model] {
      auto made = compiler->compile(request);
      if (made.ok() && model->unchanged(nullptr)) return std::make_shared<const Compiled>(std::move(made->compiled));
      TESSERA_LOGF(LogChannel::Warnings, "what a compile says of " + compiler->path() + " is not known: " +
                                             (made.ok() ? "the model was changed" : made.error().str()));
      Compiled nothing; // as of a compiled file
      nothing.executable = executable;
      return std::make_shared<const Compiled>(std::move(nothing));
    });
    imported(std::move(plan.info), std::move(plan.warnings), 0);
  }

  SessionOptions options_;
  std::shared_ptr<const ModelCompiler> compiler_; // of variants, too, which may outlive this
  bool from_file_ = false, opened_ = false;
  std::mutex content_mutex_;
  std::shared_ptr<ModelContent> content_; // null: not needed yet
};

} // namespace

std::unique_ptr<ModelSource> make_model_source(std::string path, std::shared_ptr<const ProgramSource> program,
                                               SessionOptions options) {
  return std::make_unique<CompiledSource>(std::move(path), std::move(program), std::move(options));
}

} // namespace tessera
