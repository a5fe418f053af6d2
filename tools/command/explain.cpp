// tessera explain: what fused, what did not and why, in bytes.
#include "report/report.h"
#include "reports.h"
#include "rules.h"
#include <cstdlib>
#include <unistd.h>
#include <unordered_map>

namespace tessera::command {

namespace {

struct ExplainOptions {
  ModelOptions model;
  std::string format = "text", output;
  bool full = false, tiles = false;
  MeasureOptions measure;
  std::string rules;
};

Diagnostic damaged(const std::string& what) {
  return Diagnostic(ErrorCode::CorruptFile, "the report in the compiled file cannot be read: " + what)
      .note("write the file again with 'tessera compile'");
}

// Adds the value of every "expression".
void evaluate_all(Json& j, const std::function<Json(const std::string&)>& value) {
  if (j.is_object() && j.contains("expression"))
    j["at_sizes"] = value(j["expression"].get<std::string>());
  else if (j.is_structured())
    for (auto& part : j) evaluate_all(part, value);
}

Result<std::string> render(const ExplainOptions& o, const Json& json) {
  try {
    if (o.format == "json") return json_text(json);
    if (o.format == "html") return explain_html(json);
    const bool color = o.output.empty() && ::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
    std::string text = o.full ? report::full(json) : report::overview(json, color);
    if (o.tiles)
      for (const auto& step : json.at("steps"))
        if (step.contains("tile")) text += "\n" + shown_lines(step.at("tile").get<std::string>());
    return text;
  } catch (const Json::exception& e) {
    return damaged(e.what());
  }
}

int run(const ExplainOptions& o) {
  auto report = [&]() -> Result<Json> {
    if (is_stored_report(o.model.model)) return report_of(o.model, o.measure);
    TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
    TESSERA_ASSIGN(SessionOptions options, session_options(o.model, shapes));
    prepare(o.measure, options);
    options.import.missing_weights = ImportOptions::MissingWeights::MadeUp;
    options.compile.keep_tiles = o.tiles;
    TESSERA_ASSIGN(auto session, open_session(o.model, std::move(options)));
    TESSERA_TRY(save_plan(o.model, *session));
    std::vector<std::string> notes;
    TESSERA_ASSIGN(Sizes sizes, choose_sizes(*session, {}, shapes, notes));
    for (const auto& n : notes) say_note(n);
    TESSERA_ASSIGN(Json made, explain_json(*session, sizes, o.tiles));
    TESSERA_TRY(add_times(o.measure, *session, sizes, made));
    return made;
  }();
  if (!report.ok()) return fail(report.error(), o.model.json);
  auto text = render(o, *report);
  if (!text.ok()) return fail(text.error(), o.model.json);
  if (o.model.json != "-")
    if (auto status = write_text(o.output, *text); !status.ok()) return fail(status.error(), "");
  int code = kDone;
  if (!o.rules.empty()) {
    auto checked = check_rule_file(o.rules, *report, &*report);
    if (!checked.ok()) return fail(checked.error(), o.model.json);
    code = *checked;
  }
  return finish(code, o.model.json, *report);
}

} // namespace

Result<Json> explain_json(const Session& session, const Sizes& sizes, bool tiles) {
  constexpr int kMaxDepth = 32; // a report has a dozen levels
  std::unordered_map<std::string, SymExpr> symbols;
  std::unordered_map<uint64_t, int64_t> values;
  for (const auto& [name, size] : sizes)
    values.emplace(symbols.emplace(name, SymExpr::symbol(name)).first->second.symbol_id(), size);
  auto lookup = [&](std::string_view name) -> Result<SymExpr> {
    auto it = symbols.find(std::string(name));
    if (it == symbols.end()) return Diagnostic(ErrorCode::ParseError, "only a run defines this size");
    return it->second;
  };
  auto value = [&](const std::string& text) -> Json {
    auto e = parse_sym(text, lookup);
    if (!e.ok()) return nullptr;
    auto v = e->eval(values);
    return v.ok() ? Json(*v) : Json(nullptr);
  };
  try {
    Json j = Json::parse(session.report(sizes, true),
                         [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; });
    if (!session.variants().front()->compiled.graph) { // its report has the sizes of the compile
      j["sizes"] = sizes;
      evaluate_all(j, value);
    }
    if (!tiles)
      for (auto& step : j.at("steps")) step.erase("tile");
    return j;
  } catch (const Json::exception& e) {
    return damaged(e.what());
  }
}

void add_explain(CommandLine& line) {
  auto options = std::make_shared<ExplainOptions>();
  Subcommand sub = line.add("explain", "say what fused, what did not and why, in bytes");
  add_model_options(sub, options->model);
  add_save_plan_option(sub, options->model);
  sub.option("--format", options->format, "of the report").one_of({"text", "json", "html"}).show_default();
  sub.option("-o,--output", options->output, "write the report to this file");
  sub.flag("--full", options->full, "all steps, edges, breaks and guards, not one screen");
  sub.flag("--tiles", options->tiles, "with the text of each tile kernel");
  add_measure_options(sub, options->measure);
  sub.option("--rules", options->rules,
             "check the rules of this file (docs/compare.md); exit code 1 where one is broken");
  sub.footer("Weights may be missing: a graph is enough.\n"
             "Examples:\n"
             "  tessera explain model.onnx --shape batch=8 --shape seq=128\n"
             "  tessera explain model.onnx --full\n"
             "  tessera explain model.pt2 --shape x=8x3x224x224\n"
             "  tessera explain model.onnx --format json -o report.json\n"
             "  tessera explain model.onnx --format html --tiles -o report.html");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
