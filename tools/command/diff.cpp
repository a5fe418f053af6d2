// tessera diff: two reports, or models with their options, compared.
#include "compare.h"
#include "reports.h"

namespace tessera::command {

namespace {

struct DiffOptions {
  ModelOptions model;
  std::string second;            // MODEL of B; empty: A's
  std::vector<std::string> with; // options of B: "device=cuda", "no-fusion"
  MeasureOptions measure;
};

// B: A's options, with those that --with names in their place.
Result<ModelOptions> second_side(const DiffOptions& o) {
  ModelOptions b = o.model;
  b.model = o.second.empty() ? o.model.model : o.second;
  CommandLine line("tessera", "", "", "");
  Subcommand sub = line.add("diff", "");
  add_model_options(sub, b);
  sub.action([] { return 0; });
  std::vector<std::string> words{"tessera", "diff", b.model};
  for (const std::string& text : o.with)
    words.push_back(text.starts_with("-") ? text : (text.find('=') == 1 || text.size() == 1 ? "-" : "--") + text);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  std::optional<Diagnostic> wrong;
  line.run(static_cast<int>(argv.size()), argv.data(), [&](const Diagnostic& d) {
    wrong = d;
    return 0;
  });
  if (!wrong) return b;
  Diagnostic d(ErrorCode::Usage, "--with: " + wrong->message);
  for (const auto& note : wrong->notes)
    if (!note.starts_with("'tessera")) d.note(note); // it names the help of 'diff'
  return std::move(d).note(
      "--with takes an option of a model without its dashes: --with device=cuda, --with no-fusion");
}

Result<Json> compare(const DiffOptions& o) {
  if (o.second.empty() && o.with.empty())
    return Diagnostic(ErrorCode::Usage, "there is nothing to compare '" + shown(o.model.model) + "' with")
        .note("give another model or report, or options that differ: --with device=cuda");
  TESSERA_ASSIGN(const ModelOptions second, second_side(o));
  const std::vector<std::string>& given = o.model.compiles;
  if (is_stored_report(o.model.model) && is_stored_report(second.model) && !(given.empty() && o.with.empty()))
    return Diagnostic(ErrorCode::Usage, "both are stored reports, to which " +
                                            (given.empty() ? "--with" : given.front()) + " cannot apply");
  TESSERA_ASSIGN(const Json a, report_of(o.model, o.measure));
  TESSERA_ASSIGN(const Json b, report_of(second, o.measure));
  try {
    return compare_reports(a, b);
  } catch (const Json::exception& e) {
    return Diagnostic(ErrorCode::CorruptFile, std::string("a report is not complete: ") + e.what());
  }
}

int run(const DiffOptions& o) {
  auto diff = compare(o);
  if (!diff.ok()) return fail(diff.error(), o.model.json);
  if (o.model.json != "-") say(comparison_text(*diff));
  return finish(diff->at("same").get<bool>() ? kDone : kDiffers, o.model.json, *diff);
}

} // namespace

void add_diff(CommandLine& line) {
  auto options = std::make_shared<DiffOptions>();
  Subcommand sub = line.add("diff", "say what fuses differently in two models, reports or sets of options, and why");
  add_model_options(sub, options->model);
  sub.option("SECOND", options->second,
             "what to compare it with: a model, or a report that 'explain' stored (default: MODEL)");
  sub.option("--with", options->with, "an option of the second one, without its dashes: device=cuda (repeatable)")
      .one_at_a_time();
  sub.flag("--measure", options->measure.measure, "run both on random inputs and compare measured times");
  sub.option("--seconds", options->measure.seconds, "with --measure: measure each for so long")
      .range(0.0, 3600.0)
      .show_default();
  sub.footer(
      "MODEL and SECOND are models, compiled files, or reports of 'tessera explain --format json'.\n"
      "Options hold for both; --with replaces them for the second one.\n"
      "Examples:\n"
      "  tessera diff before.json after.json\n"
      "  tessera diff model.onnx --with no-fusion\n"
      "  tessera diff model.onnx model.pt2 --shape batch=8 --device cuda --arch sm_90a\n"
      "  tessera diff model.onnx --device cpu --with device=cuda --with arch=sm_90a --with target=h200",
      "the plans differ");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
