#include "reports.h"
#include "base/environment.h"
#include "measure.h"
#include "measure/calibrate/calibrate.h"
#include "routes.h"
#include "runtime/variant.h"

namespace tessera::command {

void add_measure_options(Subcommand& sub, MeasureOptions& o) {
  sub.flag("--measure", o.measure, "run the model on random inputs and give each step its measured time");
  sub.flag("--measure-routes", o.routes,
           "and each library call the time of the generated code that could replace it: compiles the model once more");
  sub.option("--profile", o.profile, "take measured times from this file of 'tessera bench' (--json or --trace)");
  sub.option("--seconds", o.seconds, "with --measure: measure for so long").range(0.0, 3600.0).show_default();
}

void prepare(const MeasureOptions& o, SessionOptions& session) {
  session.compile_only = !o.measures();
  session.executor.profile = session.executor.profile_submitted = o.measures();
  session.executor.wait_for_plans = true; // what is timed is what stays
}

Status price_by_this_host(const ModelOptions& model, const MeasureOptions& o, SessionOptions& session) {
  const bool chosen = !model.target.empty() || environment("TESSERA_TARGET") != nullptr;
  if (!o.measures() || chosen || session.compile.device != "cpu") return {};
  Progress progress;
  CalibrateOptions calibrate;
  calibrate.name = "this machine";
  calibrate.progress = [&](const std::string& what) { progress.show("measuring " + what); };
  const auto pool = ThreadPool::create(model.options.threads);
  TESSERA_ASSIGN(Target here, calibrate_host(*pool, calibrate));
  session.compile.prices = std::make_shared<const Target>(std::move(here));
  return {};
}

namespace {
// A note where the steps take a multiple of their prediction, or a part of it: the figures are not this machine's.
std::optional<std::string> far_from_prediction(const Json& report) {
  constexpr double kFar = 2;
  double predicted = 0, measured = 0;
  for (const Json& s : report.at("steps")) {
    const Json us = s.at("price").value("alone_us", s.at("price").at("us"));
    if (!s.contains("measured_us") || !us.is_number()) continue;
    predicted += us.get<double>();
    measured += s.at("measured_us").get<double>();
  }
  if (predicted <= 0 || (measured < kFar * predicted && predicted < kFar * measured)) return std::nullopt;
  const bool gpu = is_gpu_target(report.at("target").get<std::string>());
  return "the steps take " + format_number(measured / predicted, 1) + " times what the figures of '" +
         shown(report.at("figures").get<std::string>()) + "' predict: a busy machine" +
         (gpu ? ", or another one; 'tessera calibrate --device cuda -o here.json' measures this one, and --target "
                "here.json plans and prices by it"
              : ", or steps that the cost model errs about");
}
} // namespace

Status add_times(const ModelOptions& model, const MeasureOptions& o, Session* session, Json& report) {
  if (!o.measures() && o.profile.empty()) return {};
  if (o.measures() && !o.profile.empty())
    return Diagnostic(ErrorCode::Usage, "--measure and --profile exclude each other: times are measured or read");
  if (o.measures() && !session)
    return Diagnostic(ErrorCode::Usage, "a stored report cannot be measured").note("give the model, or --profile FILE");
  StepTimes times;
  if (o.measures()) {
    TESSERA_ASSIGN(times, measure_steps(*session, report.at("sizes").get<Sizes>(), o.seed, o.seconds));
  } else {
    TESSERA_ASSIGN(times, read_step_times(o.profile));
  }
  std::vector<std::string> notes;
  TESSERA_TRY(add_measured(report, times, notes));
  if (auto far = far_from_prediction(report)) notes.push_back(std::move(*far));
  if (o.routes) TESSERA_TRY(measure_routes(model, o, *session, report, notes));
  for (const auto& n : notes) say_note(n);
  return {};
}

Result<Json> report_of(const ModelOptions& o, const MeasureOptions& measure) {
  if (is_stored_report(o.model)) {
    TESSERA_ASSIGN(Json report, read_report(o.model));
    TESSERA_TRY(add_times(o, measure, nullptr, report));
    return report;
  }
  TESSERA_ASSIGN(auto shapes, parse_shapes(o.shapes));
  TESSERA_ASSIGN(SessionOptions options, session_options(o, shapes));
  options.import.missing_weights = ImportOptions::MissingWeights::MadeUp;
  prepare(measure, options);
  TESSERA_TRY(price_by_this_host(o, measure, options));
  TESSERA_ASSIGN(auto session, open_session(o, std::move(options)));
  std::vector<std::string> notes;
  TESSERA_ASSIGN(Sizes sizes, choose_sizes(*session, {}, shapes, notes));
  for (const auto& n : notes) say_note(n);
  TESSERA_ASSIGN(Json report, explain_json(*session, sizes, false));
  TESSERA_TRY(add_times(o, measure, session.get(), report));
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
