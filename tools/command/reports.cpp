#include "reports.h"
#include "graph/support/file.h"
#include "measure.h"
#include <cctype>

namespace tessera::command {

void add_measure_options(Subcommand& sub, MeasureOptions& o) {
  sub.flag("--measure", o.measure, "run the model on random inputs and give each step its measured time");
  sub.option("--profile", o.profile, "take measured times from this file of 'tessera bench' (--json or --trace)");
  sub.option("--seconds", o.seconds, "with --measure: measure for so long").range(0.0, 3600.0).show_default();
}

void prepare(const MeasureOptions& o, SessionOptions& session) {
  session.compile_only = !o.measure;
  session.executor.profile = o.measure;
  session.executor.wait_for_plans = true; // what is timed is what stays
}

Status add_times(const MeasureOptions& o, Session& session, const Sizes& sizes, Json& report) {
  if (!o.measure && o.profile.empty()) return {};
  if (o.measure && !o.profile.empty())
    return Diagnostic(ErrorCode::Usage, "--measure and --profile exclude each other: times are measured or read");
  StepTimes times;
  if (o.measure) {
    TESSERA_ASSIGN(times, measure_steps(session, sizes, o.seed, o.seconds));
  } else {
    TESSERA_ASSIGN(times, read_step_times(o.profile));
  }
  std::vector<std::string> notes;
  TESSERA_TRY(add_measured(report, times, notes));
  for (const auto& n : notes) say_note(n);
  return {};
}

bool is_stored_report(const std::string& path) {
  auto file = map_file(path);
  if (!file.ok()) return false; // opening it as a model says why
  size_t at = 0;
  while (at < file->bytes && std::isspace(std::to_integer<unsigned char>(file->data[at]))) ++at;
  return at < file->bytes && file->data[at] == std::byte{'{'}; // no model begins like this
}

Result<Json> read_report(const std::string& path) {
  TESSERA_ASSIGN(const std::string text, read_file(path));
  auto broken = [&](const std::string& why) {
    return Diagnostic(ErrorCode::CorruptFile, "'" + shown(path) + "' is no report: " + why)
        .note("'tessera explain MODEL --format json -o FILE' writes one");
  };
  Json j = Json::parse(text, nullptr, false);
  if (!j.is_object()) return broken("it is no JSON object");
  const Json& schema = j.contains("schema") ? j["schema"] : Json();
  if (!schema.is_object() || schema.value("name", "") != "tessera.report") return broken("its schema is another one");
  if (schema.value("version", 0) != 1)
    return broken("it has version " + schema.value("version", Json(0)).dump() + ", this program reads version 1");
  for (const char* list : {"operators", "steps", "edges", "pairs", "breaks", "guards"})
    if (!j.contains(list) || !j[list].is_array()) return broken("it has no list '" + std::string(list) + "'");
  for (const char* object : {"sizes", "totals"})
    if (!j.contains(object) || !j[object].is_object()) return broken("it has no '" + std::string(object) + "'");
  return j;
}

Result<Json> report_of(const ModelOptions& o, const MeasureOptions& measure) {
  if (is_stored_report(o.model)) {
    TESSERA_ASSIGN(Json report, read_report(o.model));
    if (measure.measure)
      return Diagnostic(ErrorCode::Usage, "'" + shown(o.model) + "' is a stored report, which cannot be measured")
          .note("give the model, or --profile FILE");
    if (!measure.profile.empty()) {
      TESSERA_ASSIGN(const StepTimes times, read_step_times(measure.profile));
      std::vector<std::string> notes;
      TESSERA_TRY(add_measured(report, times, notes));
      for (const auto& n : notes) say_note(n);
    }
    return report;
  }
  TESSERA_ASSIGN(auto shapes, parse_shapes(o.shapes));
  TESSERA_ASSIGN(SessionOptions options, session_options(o, shapes));
  options.import.missing_weights = ImportOptions::MissingWeights::MadeUp;
  prepare(measure, options);
  TESSERA_ASSIGN(auto session, open_session(o, std::move(options)));
  std::vector<std::string> notes;
  TESSERA_ASSIGN(Sizes sizes, choose_sizes(*session, {}, shapes, notes));
  for (const auto& n : notes) say_note(n);
  TESSERA_ASSIGN(Json report, explain_json(*session, sizes, false));
  TESSERA_TRY(add_times(measure, *session, sizes, report));
  return report;
}

bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

size_t matching_prefix(std::string_view pattern, std::string_view text) {
  for (size_t n = 0; n <= text.size(); ++n)
    if (matches(pattern, text.substr(0, n))) return n;
  return std::string_view::npos;
}

bool is_called(const Json& operation, std::string_view pattern) {
  for (const char* key : {"id", "name", "module", "source"}) {
    const auto it = operation.find(key);
    if (it != operation.end() && it->is_string() && matches(pattern, it->get_ref<const std::string&>())) return true;
  }
  return false;
}

} // namespace tessera::command
