// The source of a session that compiles: model or program -> import -> compile.
#include "api/compiler/background.h"
#include "api/file_variants.h"
#include "api/variant.h"
#include "codegen/driver/bodies.h"
#include "codegen/driver/steering.h"
#include "codegen/load/load.h"
#include "codegen/tune/target.h"
#include "frontend/fx/importer.h"
#include "frontend/model.h"
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"
#include "report/report.h"
#include <algorithm>

namespace tessera {
namespace {

// The compile that made an executable: this one, or that of a body of its control flow.
const Compiled* made_by(const Compiled& compiled, const Executable& executable) {
  if (compiled.executable.get() == &executable) return &compiled;
  for (const auto& [group, control] : compiled.bodies)
    for (const auto& body : control->bodies)
      if (const Compiled* found = made_by(*body.compiled, executable)) return found;
  return nullptr;
}

class CompiledVariants final : public VariantSource {
public:
  CompiledVariants(std::string path, std::shared_ptr<const ProgramSource> program, SessionOptions options)
      : path_(std::move(path)), program_(std::move(program)), options_(std::move(options)) {
    CompileOptions& compile = options_.compile;
    compile.records = options_.use_tuned;
    if (options_.use_tuned && !compile.tuned)
      if (auto target = tuned_target(compile))
        compile.tuned = tuned_ = std::make_shared<TunedRecords>(compile.cache_dir, std::move(*target));
  }

  Result<std::vector<std::shared_ptr<SessionVariant>>> open() override {
    const Stopwatch watch;
    if (!program_ && is_compiled_file(path_)) {
      TESSERA_ASSIGN(auto all, open_file_variants(path_, options_));
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

  // Imports anew (a graph is consumed by its compile) and compiles, with the sizes of the requesting call as hints.
  Result<std::shared_ptr<SessionVariant>> make(const VariantRequest& request) override {
    if (from_file_) return no_file_variant(path_, request.sizes);
    const Stopwatch watch;
    ImportOptions import = options_.import;
    for (const auto& [symbol, size] : request.sizes) import.dim_hints[symbol] = size;
    import.of_call = import.of_call || request.of_call;
    auto imported = program_ ? fx::import_program(*program_, import) : import_model(path_, import);
    if (!imported.ok() && imported.error().code == ErrorCode::MissingValues && !options_.compile_only && !program_) {
      import.undetermined = true; // the first call reports them
      auto waiting = import_model(path_, import);
      import.undetermined = waiting.ok();
      if (waiting.ok()) imported = std::move(waiting);
    }
    TESSERA_ASSIGN(auto model, std::move(imported));
    const double took = watch.ms();
    const bool first = !opened_;
    if (first) {
      import_ms_ = took;
      info_ = model.info;
      warnings_ = model.warnings;
    }
    CompileOptions compile = options_.compile;
    if (request.background) compile.jobs = 1;
    compile.as_loops.insert(request.as_loops.begin(), request.as_loops.end());
    auto variant = std::make_shared<SessionVariant>();
    variant->fits_no_call = import.undetermined;
    variant->label = request.sizes.empty() ? "generic" : "for " + text_of(request.sizes);
    variant->as_loops = compile.as_loops;
    if (!variant->as_loops.empty())
      variant->label += ", " + std::to_string(variant->as_loops.size()) + " nodes as loops";
    if (request.specialization) TESSERA_TRY(assume(*request.specialization, request.sizes, model.graph, *variant));
    if (first) TESSERA_TRY(check_operators(model.graph, compile));
    TESSERA_ASSIGN(Compiled compiled, tessera::compile(std::move(model.graph), compile));
    CompileReport& report = compiled.report;
    report.import_ms = took;
    if (tuned_) // a folder that neither can use is reported once
      for (auto& w : tuned_->warnings())
        if (std::find(report.cache_warnings.begin(), report.cache_warnings.end(), w) == report.cache_warnings.end())
          report.cache_warnings.push_back(std::move(w));
    if (first)
      for (const std::string& w : warnings_) TESSERA_LOGF(LogChannel::Warnings, w);
    for (const std::string& w : report.cache_warnings) TESSERA_LOGF(LogChannel::Warnings, w);
    variant->kernels = report.cache_hits + report.cache_misses;
    variant->cached_kernels = report.cache_hits;
    variant->executable = compiled.executable;
    variant->compiled = std::make_shared<const Compiled>(std::move(compiled));
    return variant;
  }

  std::set<std::string> nodes_of(const SessionVariant& variant, const Executable& in,
                                 const std::vector<std::string>& steps) const override {
    std::set<std::string> nodes;
    const bool earlier =
        std::any_of(variant.earlier.begin(), variant.earlier.end(), [&](const auto& e) { return e.get() == &in; });
    const Compiled* from = earlier ? variant.compiled.get() : made_by(*variant.compiled, in);
    if (!from || !from->graph) return nodes;
    for (const Group* group : flat_groups(from->report.plan)) // the steps of an attention, too
      if (group->kind == Group::Kind::Library && std::find(steps.begin(), steps.end(), group->name) != steps.end())
        nodes.insert(from->graph->node(group->call.node).location.node);
    nodes.erase("");
    return nodes;
  }

  std::string report(const SessionVariant& variant, const Sizes& sizes, bool thorough) const override {
    if (!variant.compiled->graph) return variant.executable->report;
    return report_text(*variant.compiled, info_, {path_, variant.label, sizes, thorough, thorough});
  }

  Status save(const std::vector<std::shared_ptr<const SessionVariant>>& variants, const std::string& path,
              bool embed_weights, const Sizes& sizes) const override {
    std::vector<FileVariant> all;
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
    return tune_in_background(options_, tuned_, std::move(hooks));
  }

private:
  Status assume(const Conditions& conditions, const Sizes& sizes, Graph& graph, SessionVariant& variant) const {
    ShapeEnv& env = graph.env();
    for (const auto& [symbol, how] : conditions.of) {
      auto s = env.find(symbol);
      if (!s) return Diagnostic(ErrorCode::Usage, "the model has no symbolic dimension '" + symbol + "'");
      auto condition =
          how.kind == Specialization::Kind::Exact ? sym_eq(*s, sizes.at(symbol)) : sym_eq(mod(*s, how.divisor), 0);
      Location where;
      where.file = path_;
      TESSERA_TRY(env.require(condition, GuardClass::Assumed, "specialized on request", where));
    }
    graph.simplify_shapes();
    variant.label = conditions.label;
    variant.specialized = true;
    variant.conditions = static_cast<int>(conditions.of.size());
    return {};
  }

  const std::string path_;
  const std::shared_ptr<const ProgramSource> program_;
  SessionOptions options_;
  std::shared_ptr<TunedRecords> tuned_; // that options_.compile.tuned shows, if it is this session's own
  bool from_file_ = false, opened_ = false;
};

} // namespace

std::unique_ptr<VariantSource> make_variant_source(std::string path, std::shared_ptr<const ProgramSource> program,
                                                   SessionOptions options) {
  return std::make_unique<CompiledVariants>(std::move(path), std::move(program), std::move(options));
}

} // namespace tessera
