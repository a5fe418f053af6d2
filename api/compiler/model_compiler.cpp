#include "api/compiler/model_compiler.h"
#include "base/absolute_path.h"
#include "base/recover.h"
#include "base/stopwatch.h"
#include "codegen/driver/steering.h"
#include "frontend/fx/importer.h"
#include "frontend/named_import.h"
#include "runtime/variant.h"
#include <algorithm>

namespace tessera {

SessionVariant described(const CompileRequest& request, const CompileOptions& options) {
  SessionVariant v;
  v.label = request.sizes.empty() ? "generic" : "for " + sizes_text(request.sizes);
  v.as_loops = options.as_loops;
  if (!v.as_loops.empty()) v.label += ", " + std::to_string(v.as_loops.size()) + " nodes as loops";
  if (!request.specialization) return v;
  v.label = request.specialization->label;
  v.specialized = true;
  v.conditions = static_cast<int>(request.specialization->of.size());
  return v;
}

ModelCompiler::ModelCompiler(std::string path, std::shared_ptr<const ProgramSource> program, SessionOptions options,
                             std::shared_ptr<TunedRecords> records)
    : path_(std::move(path)), file_(absolute_path(path_)), program_(std::move(program)), options_(std::move(options)),
      records_(std::move(records)) {}

ImportOptions ModelCompiler::import_options(const CompileRequest& request) const {
  ImportOptions import = options_.import;
  for (const auto& [symbol, size] : request.sizes) import.dim_hints[symbol] = size;
  import.of_call = import.of_call || request.of_call;
  return import;
}

CompileOptions ModelCompiler::compile_options(const CompileRequest& request) const {
  CompileOptions compile = options_.compile;
  if (request.background) compile.jobs = 1;
  compile.as_loops.insert(request.as_loops.begin(), request.as_loops.end());
  return compile;
}

Result<CompiledModel> ModelCompiler::compile(const CompileRequest& request) const {
  const Stopwatch watch;
  CompiledModel out;
  failure_point("import");
  ImportOptions import = import_options(request);
  auto imported = program_ ? fx::import_program(*program_, import) : import_model(file_, path_, import);
  if (!imported.ok() && imported.error().code == ErrorCode::MissingValues && !options_.compile_only && !program_) {
    import.undetermined = true; // the first call reports them
    auto waiting = import_model(file_, path_, import);
    import.undetermined = waiting.ok();
    if (waiting.ok()) imported = std::move(waiting);
  }
  TESSERA_ASSIGN(auto model, std::move(imported));
  out.import_ms = watch.ms();
  out.info = std::move(model.info);
  out.warnings = std::move(model.warnings);
  out.weight_files = std::move(model.weight_files);
  out.copied_weights = std::move(model.copied_weights);
  out.fits_no_call = import.undetermined;
  if (request.specialization) TESSERA_TRY(assume(request, model.graph));
  CompileOptions compile = compile_options(request);
  if (request.check_operators) TESSERA_TRY(check_operators(model.graph, compile));
  TESSERA_ASSIGN(out.compiled, tessera::compile(std::move(model.graph), compile));
  if (!model.states.empty()) {
    std::vector<Constant> states;
    for (ModelState& s : model.states) states.push_back({std::move(s.name), std::move(s.first)});
    add_states(std::move(states), out.compiled);
    TESSERA_TRY(verify(*out.compiled.executable));
  }
  CompileReport& report = out.compiled.report;
  report.import_ms = out.import_ms;
  if (records_) // a folder that neither can use is reported once
    for (auto& w : records_->warnings())
      if (std::find(report.cache_warnings.begin(), report.cache_warnings.end(), w) == report.cache_warnings.end())
        report.cache_warnings.push_back(std::move(w));
  return out;
}

Status ModelCompiler::assume(const CompileRequest& request, Graph& graph) const {
  ShapeEnv& env = graph.env();
  for (const auto& [symbol, how] : request.specialization->of) {
    auto s = env.find(symbol);
    if (!s) return Diagnostic(ErrorCode::Usage, "the model has no symbolic dimension '" + symbol + "'");
    auto condition = how.kind == Specialization::Kind::Exact ? sym_eq(*s, request.sizes.at(symbol))
                                                             : sym_eq(mod(*s, how.divisor), 0);
    Location where;
    where.file = path_;
    TESSERA_TRY(env.require(condition, GuardClass::Assumed, "specialized on request", where));
  }
  graph.simplify_shapes();
  return {};
}

} // namespace tessera
