// tessera explain: what fused, what did not and why, and what it costs.
#include "base/file.h"
#include "graph/ir/graph.h"
#include "report/report.h"
#include "reports.h"
#include "rules.h"
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <unistd.h>
#include <unordered_map>

namespace tessera::command {

namespace {

struct ExplainOptions {
  ModelOptions model;
  std::string format, output, color = "auto";
  bool full = false, tiles = false;
  MeasureOptions measure;
  std::string rules;
  // Questions; each is answered instead of the first screen.
  std::string kernel, op, ir, code;
  std::vector<std::string> why_not;
  bool guards = false, memory = false;

  [[nodiscard]] bool has_query() const {
    return !kernel.empty() || !op.empty() || !ir.empty() || !why_not.empty() || guards || memory;
  }
  [[nodiscard]] bool stored() const { return is_stored_report(model.model); }
};

constexpr int kMaxDepth = 32; // a report has a dozen levels

Result<Json> parse_report(const std::string& text, const std::function<Diagnostic(const std::string&)>& damaged) {
  try {
    return Json::parse(text, [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; });
  } catch (const Json::exception& e) {
    return damaged(e.what());
  }
}

Diagnostic damaged(const std::string& what) {
  return Diagnostic(ErrorCode::CorruptFile, "the report in the compiled file cannot be read: " + what)
      .note("write the file again with 'tessera compile'");
}

Diagnostic damaged_report(const std::string& path, const std::string& what) {
  return Diagnostic(ErrorCode::CorruptFile, path + ": the report cannot be read: " + what)
      .note("write it again with 'tessera explain MODEL -o FILE.json'");
}

Result<Json> stored_report(const ExplainOptions& o) {
  const std::string& path = o.model.model;
  if (!o.model.shapes.empty() || !o.model.compiles.empty())
    return Diagnostic(ErrorCode::Usage, path + " is a stored report, to which " +
                                            (o.model.compiles.empty() ? "--shape" : o.model.compiles[0]) +
                                            " cannot apply")
        .note("give it to 'tessera explain MODEL', which makes the report");
  TESSERA_ASSIGN(Json report, read_report(path));
  TESSERA_TRY(add_times(o.model, o.measure, nullptr, report));
  return report;
}

// Adds the value of every "expression".
void evaluate_all(Json& j, const std::function<Json(const std::string&)>& value) {
  if (j.is_object() && j.contains("expression"))
    j["at_sizes"] = value(j["expression"].get<std::string>());
  else if (j.is_structured())
    for (auto& part : j) evaluate_all(part, value);
}

Result<std::string> answers(const ExplainOptions& o, const Json& json) {
  std::vector<std::string> out;
  for (size_t i = 0; i + 1 < o.why_not.size(); i += 2) {
    TESSERA_ASSIGN(std::string text, report::why_not(json, o.why_not[i], o.why_not[i + 1]));
    out.push_back(std::move(text));
  }
  if (!o.kernel.empty() && o.ir.empty()) {
    TESSERA_ASSIGN(std::string text, report::kernel(json, o.kernel));
    out.push_back(std::move(text));
  }
  if (!o.op.empty()) {
    TESSERA_ASSIGN(std::string text, report::operators(json, o.op));
    out.push_back(std::move(text));
  }
  if (o.memory) out.push_back(report::memory(json));
  if (o.guards) out.push_back(report::guards(json).substr(1)); // without the empty line before its title
  if (!o.ir.empty()) {
    TESSERA_ASSIGN(std::string text, report::ir(json, o.ir, o.ir == "graph" ? "" : o.kernel));
    out.push_back(std::move(text));
  }
  std::string all;
  for (const auto& text : out) all += (all.empty() ? "" : "\n") + text;
  return shown_lines(all, o.ir.empty() ? kMaxShownLine : std::string::npos);
}

Result<std::string> render(const ExplainOptions& o, const std::string& format, const Json& json) {
  try {
    if (format == "json") return json_text(json);
    if (format == "html") return explain_html(json);
    if (o.has_query()) return answers(o, json);
    const bool color = o.color == "always" || (o.color == "auto" && o.output.empty() && ::isatty(STDOUT_FILENO) != 0 &&
                                               std::getenv("NO_COLOR") == nullptr);
    std::string text = o.full ? report::full(json) : report::overview(json, color);
    if (!color || o.full) text = shown_lines(text);
    if (o.tiles)
      for (const auto& step : json.at("steps"))
        if (step.contains("tile")) text += "\n" + shown_lines(step.at("tile").get<std::string>());
    return text;
  } catch (const Json::exception& e) {
    return o.stored() ? damaged_report(o.model.model, e.what()) : damaged(e.what());
  } catch (const std::out_of_range&) { // an id that names nothing
    const std::string what = "an id names no step or operator of it";
    return o.stored() ? damaged_report(o.model.model, what) : damaged(what);
  }
}

Result<Json> made_report(const ExplainOptions& o) {
  TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
  TESSERA_ASSIGN(SessionOptions options, session_options(o.model, shapes));
  prepare(o.measure, options);
  TESSERA_TRY(price_by_this_host(o.model, o.measure, options));
  options.import.missing_weights = ImportOptions::MissingWeights::MadeUp;
  const bool machine_texts = o.ir == "llvm" || o.ir == "ptx", tiles = o.tiles || o.ir == "tile";
  options.compile.keep_tiles = tiles;
  options.compile.keep_texts = machine_texts;
  TESSERA_ASSIGN(auto session, open_session(o.model, std::move(options)));
  TESSERA_TRY(save_plan(o.model, *session));
  std::vector<std::string> notes;
  TESSERA_ASSIGN(Sizes sizes, choose_sizes(*session, {}, shapes, notes));
  if (const auto variants = session->variants(); variants.front()->from_file && variants.size() > 1) {
    std::string labels;
    for (const auto& v : variants) labels += (labels.empty() ? "'" : "', '") + shown(v->label);
    notes.push_back("the file has the variants " + labels + "'; this is the report of the first");
  }
  for (const auto& n : notes) say_note(n);
  TESSERA_ASSIGN(Json report, explain_json(*session, sizes, tiles));
  if (const auto& graph = session->variants().front()->compiled->graph; o.ir == "graph" && graph)
    report["graph"] = print(*graph);
  TESSERA_TRY(add_times(o.model, o.measure, session.get(), report));
  return report;
}

// --code: of no model.
int run_code(const ExplainOptions& o) {
  auto reason = explain_code(o.code);
  if (!reason.ok()) return fail(reason.error(), o.model.json);
  if (o.model.json != "-")
    if (auto status = write_text(o.output, reason->text); !status.ok()) return fail(status.error(), "");
  return finish(kDone, o.model.json, reason->json);
}

int run(const ExplainOptions& o) {
  if (!o.code.empty() && o.model.model.empty()) return run_code(o);
  if (!o.code.empty() || o.model.model.empty())
    return fail(Diagnostic(ErrorCode::Usage, o.code.empty() ? "explain needs a model, a compiled file or a report"
                                                            : "--code explains a reason, not a model")
                    .note(o.code.empty() ? "tessera explain MODEL" : "leave out the model"),
                o.model.json);
  auto format = chosen_format(o.output, o.format);
  if (!format.ok()) return fail(format.error(), o.model.json);
  auto report = o.stored() ? stored_report(o) : made_report(o);
  if (!report.ok()) return fail(report.error(), o.model.json);
  auto text = render(o, *format, *report);
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

Result<std::string> chosen_format(const std::string& output, const std::string& format) {
  const std::string extension = std::filesystem::path(output).extension().string();
  const std::string named = extension == ".html" || extension == ".json" ? extension.substr(1)
                            : extension == ".txt"                        ? "text"
                                                                         : "";
  if (!named.empty() && !format.empty() && named != format)
    return Diagnostic(ErrorCode::Usage,
                      "-o '" + output + "' is " + named + " by its extension, and --format says " + format)
        .note("leave one of them out");
  if (named.empty() && !extension.empty() && format.empty())
    return Diagnostic(ErrorCode::Usage, "-o '" + output + "': no format has the extension '" + extension + "'")
        .note("known are .txt, .json and .html; --format text, json or html takes any name");
  if (!named.empty()) return named;
  return format.empty() ? "text" : format;
}

bool is_stored_report(const std::string& path) { return path.ends_with(".json"); }

Result<Json> read_report(const std::string& path) {
  TESSERA_ASSIGN(const std::string text, read_file(path));
  TESSERA_ASSIGN(Json j, parse_report(text, [&](const std::string& what) { return damaged_report(path, what); }));
  const Json schema = j.is_object() ? j.value("schema", Json()) : Json();
  if (!schema.is_object() || schema.value("name", Json()) != "tessera.report")
    return damaged_report(path, "it has no \"schema\" of the name \"tessera.report\"");
  if (schema.value("version", Json()) != 1)
    return damaged_report(path, "its schema's version is " + schema.value("version", Json()).dump() +
                                    ", this command reads 1");
  return j;
}

Result<Json> explain_json(const Session& session, const Sizes& sizes, bool tiles) {
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
  TESSERA_ASSIGN(Json j, parse_report(session.report(sizes, true), damaged));
  try {
    if (!session.variants().front()->compiled->graph) { // its times have the sizes of the compile
      if (j.at("sizes") != Json(sizes)) j["priced_sizes"] = j.at("sizes");
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
  Subcommand sub = line.add("explain", "say what fused, what did not, why, and what it costs");
  sub.option("-o,--output", options->output, "write the report to this file: x.txt, x.json or x.html").writes_file();
  sub.option("--format", options->format, "of the report, where -o does not say it (default: text)")
      .one_of({"text", "json", "html"});
  sub.flag("--full", options->full, "all steps, edges, breaks and guards, not one screen");
  sub.option("--color", options->color, "colours: auto is on a terminal without NO_COLOR")
      .one_of({"auto", "always", "never"})
      .show_default();
  sub.flag("--tiles", options->tiles, "with the text of each tile kernel");
  sub.group("Questions");
  sub.option("--kernel", options->kernel,
             "a step, by index or id: price, schedule, operators, what it is not fused with");
  sub.option("--op", options->op, "an operator, by its exporter's name, source line or module: its steps and edges");
  sub.option("--why-not", options->why_not, "two operators: why they are not in one kernel, and what that costs")
      .pairs();
  sub.flag("--guards", options->guards, "conditions on sizes, and what unknown sizes cost");
  sub.flag("--memory", options->memory, "the arena, its peak, the largest buffers and their lifetimes");
  sub.option("--ir", options->ir, "texts of the kernels, or of the one of --kernel; the graph behind all passes")
      .one_of({"graph", "nest", "tile", "llvm", "ptx"});
  sub.option("--code", options->code, "a reason, by code or name: its page; 'list' names all; takes no model");
  sub.group("Measured times and rules");
  add_measure_options(sub, options->measure);
  sub.option("--rules", options->rules, "check the rules of this file (docs/compare.md)");
  sub.group("");
  add_model_options(sub, options->model);
  sub.declared("MODEL").required(false);
  add_save_plan_option(sub, options->model);
  sub.footer("MODEL may also be a compiled file, or a report that -o x.json wrote. Weights may be missing.\n"
             "Examples:\n"
             "  tessera explain model.onnx --shape batch=8,seq=128\n"
             "  tessera explain model.pt2 --shape x=8x3x224x224 --full\n"
             "  tessera explain model.onnx --why-not Add_12 MatMul_13\n"
             "  tessera explain --code FUS-037\n"
             "  tessera explain model.onnx --kernel k7 --ir ptx --device cuda --arch sm_90a\n"
             "  tessera explain model.onnx -o report.json && tessera explain report.json --memory\n"
             "  tessera explain model.onnx --tiles -o report.html",
             "a rule of --rules is broken");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
