// tessera diff: two reports, or models with their options, compared.
#include "compare.h"
#include "reports.h"
#include <stdexcept>

namespace tessera::command {

namespace {

struct DiffOptions {
  ModelOptions model;
  std::string second;            // MODEL of B; empty: A's
  std::vector<std::string> with; // options of B: "device=cuda", "no-fusion"
  MeasureOptions measure;
  std::string output, format;
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

// The comparison, and where -o or --format requests it the text of that.
struct Compared {
  Json diff;
  std::string text;
};

Result<Compared> compare(const DiffOptions& o) {
  TESSERA_ASSIGN(const std::string format, chosen_format(o.output, o.format));
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
    Compared out{compare_reports(a, b), ""};
    out.text = format == "html"   ? diff_html(out.diff, a, b)
               : format == "json" ? json_text(out.diff)
                                  : shown_lines(comparison_text(out.diff));
    return out;
  } catch (const Json::exception& e) {
    return Diagnostic(ErrorCode::CorruptFile, std::string("a report is not complete: ") + e.what());
  } catch (const std::out_of_range&) { // an id that names nothing
    return Diagnostic(ErrorCode::CorruptFile, "a report is not complete: an id names no step or operator of it");
  }
}

int run(const DiffOptions& o) {
  auto compared = compare(o);
  if (!compared.ok()) return fail(compared.error(), o.model.json);
  const Json& diff = compared->diff;
  if (o.model.json != "-")
    if (auto status = write_text(o.output, compared->text); !status.ok()) return fail(status.error());
  return finish(diff.at("same").get<bool>() ? kDone : kDiffers, o.model.json, diff);
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
  sub.option("-o,--output", options->output,
             "write the comparison to this file: x.txt, x.json, or x.html, with both reports side by side")
      .writes_file();
  sub.option("--format", options->format, "of the comparison, where -o does not say it (default: text)")
      .one_of({"text", "json", "html"});
  sub.flag("--measure", options->measure.measure, "run both on random inputs and compare measured times");
  sub.option("--seconds", options->measure.seconds, "with --measure: measure each for so long")
      .range(0.0, 3600.0)
      .show_default();
  sub.footer("MODEL and SECOND are models, compiled files, or reports of 'tessera explain --format json'.\n"
             "Options hold for both; --with replaces them for the second one.\n"
             "Examples:\n"
             "  tessera diff before.json after.json\n"
             "  tessera diff before.json after.json -o page.html\n"
             "  tessera diff model.onnx --with no-fusion\n"
             "  tessera diff model.onnx model.pt2 --shape batch=8 --device cuda --arch sm_90a\n"
             "  tessera diff model.onnx --device cpu --with device=cuda --with arch=sm_90a --with target=h200",
             "the plans differ");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
