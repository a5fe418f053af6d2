// tessera explain: what fused, what did not and why, in bytes.
#include "explain.h"
#include <cstdio>

namespace tessera::command {

namespace {

struct ExplainOptions {
  ModelOptions model;
  std::string format = "text", output;
  bool summary = false, tiles = false;
};

int run(const ExplainOptions& o) {
  auto report = [&]() -> Result<Json> {
    TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
    TESSERA_ASSIGN(SessionOptions options, session_options(o.model, shapes));
    options.allow_compiled_file = false;
    options.compile_only = true;
    options.import.allow_missing_weights = true; // a graph without its weights explains as well
    options.compile.keep_texts = o.tiles;
    Progress progress;
    progress.show("compiling " + o.model.model);
    TESSERA_ASSIGN(auto session, Session::open(o.model.model, std::move(options)));
    progress.clear();
    std::vector<std::string> notes;
    TESSERA_ASSIGN(Sizes sizes, choose_sizes(*session, {}, shapes, notes));
    for (const auto& n : notes) std::fprintf(stderr, "note: %s\n", printable(n).c_str());
    return explain_json(*session, *session->variants().front(), o.model.model, sizes);
  }();
  if (!report.ok()) return fail(report.error(), o.model.json);
  std::string text;
  if (o.format == "json")
    text = report->dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  else if (o.format == "html")
    text = explain_html(*report);
  else
    text = printable(explain_text(*report, o.summary));
  if (o.tiles && o.format == "text")
    for (const char* which : {"kernels", "library_calls"})
      for (const auto& k : (*report)[which])
        if (k.contains("tile")) text += "\n" + k["tile"].get<std::string>();
  if (o.model.json != "-")
    if (auto status = write_text(o.output, text); !status.ok()) return fail(status.error(), "");
  return finish(kDone, o.model.json, *report);
}

} // namespace

void add_explain(CommandLine& line) {
  auto options = std::make_shared<ExplainOptions>();
  Subcommand sub = line.add("explain", "say what fused, what did not and why, in bytes");
  add_model_options(sub, options->model);
  sub.option("--format", options->format, "of the report").one_of({"text", "json", "html"}).show_default();
  sub.option("-o,--output", options->output, "write the report to this file");
  sub.flag("--summary", options->summary, "counts, breaks and totals only");
  sub.flag("--tiles", options->tiles, "with the text of each tile kernel");
  sub.footer("Weights may be missing: a graph is enough.\n"
             "Examples:\n"
             "  tessera explain model.onnx --shape batch=8 --shape seq=128\n"
             "  tessera explain model.onnx --summary\n"
             "  tessera explain model.onnx --format json -o report.json\n"
             "  tessera explain model.onnx --format html --tiles -o report.html");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
