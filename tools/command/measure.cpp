#include "measure.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "runtime/executable.h"
#include "runtime/variant.h"
#include <algorithm>
#include <set>

namespace tessera::command {

double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

Result<Timed> Timed::create(Session& session, const Tensors& tensors, bool gpu, RunStats& stats) {
  Timed t;
  TESSERA_ASSIGN(auto results, session.run(tensors, &stats)); // on a GPU it yields the outputs' sizes, too
  if (!gpu) return t;
  TESSERA_ASSIGN(t.watch, cuda::Stopwatch::create());
  for (const auto& [name, tensor] : tensors) {
    TESSERA_ASSIGN(t.inputs[name], t.watch->upload(tensor));
  }
  for (const auto& r : results) {
    TESSERA_ASSIGN(auto out, t.watch->allocate(r.dtype(), r.dims()));
    t.outputs.push_back(std::move(out));
  }
  return t;
}

Result<double> Timed::call(Session& session, const Tensors& tensors, RunStats* stats) const {
  if (watch) return watch->time([&](void* stream) { return session.run_on_device(inputs, outputs, stream, stats); });
  const Stopwatch clock;
  TESSERA_TRY(session.run(tensors, stats));
  return clock.ms();
}

double StepTimes::Step::median() const {
  std::vector<double> sorted = us;
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : percentile(sorted, 0.5);
}

void StepTimes::add(const RunStats& call) {
  for (const StepProfile& s : call.steps) {
    auto [it, fresh] = index_.try_emplace(s.name, steps.size());
    if (fresh) steps.push_back({s.name, s.bytes, {}});
    steps[it->second].us.push_back(s.ms * 1e3);
  }
}

Result<StepTimes> measure_steps(Session& session, const Sizes& sizes, uint64_t seed, double seconds, size_t least) {
  const std::string& target = session.variants().front()->executable->target;
  Tensors tensors;
  TESSERA_TRY(make_inputs(session, sizes, seed, tensors));
  Progress progress;
  progress.show("measuring");
  StepTimes times;
  times.target = target;
  times.sizes = sizes;
  RunStats stats;
  TESSERA_ASSIGN(Timed timed, Timed::create(session, tensors, is_gpu_target(target), stats));
  std::vector<double> calls;
  for (const Stopwatch clock; calls.size() < least || clock.seconds() < seconds;) {
    TESSERA_ASSIGN(const double ms, timed.call(session, tensors, nullptr));
    calls.push_back(ms * 1e3);
    TESSERA_TRY(timed.call(session, tensors, &stats));
    times.add(stats);
  }
  std::sort(calls.begin(), calls.end());
  times.call_us = percentile(calls, 0.5);
  return times;
}

namespace {

// A step's times by id, in the order of a file.
StepTimes from_lists(const std::vector<std::pair<std::string, double>>& all) {
  RunStats stats;
  for (const auto& [id, us] : all) {
    StepProfile& p = stats.steps.emplace_back();
    p.name = id;
    p.ms = us / 1e3;
  }
  StepTimes times;
  times.add(stats);
  return times;
}

StepTimes from_trace(const Json& j) {
  std::vector<std::pair<std::string, double>> steps, calls;
  for (const Json& e : j.at("traceEvents")) {
    const std::string category = e.value("cat", "");
    const bool call = category == "call";
    if (!call && category != "step" && category != "host step") continue;
    if (e.at("args").at("call") == 0) continue; // it plans, and steps find nothing in the caches
    (call ? calls : steps).emplace_back(e.at("name").get<std::string>(), e.at("dur").get<double>());
  }
  StepTimes times = from_lists(steps);
  const Json& about = j.at("otherData");
  times.target = about.value("target", "");
  times.sizes = about.value("sizes", Sizes());
  return times;
}

StepTimes from_bench(const Json& j) {
  std::vector<std::pair<std::string, double>> steps;
  for (const Json& s : j.at("steps"))
    steps.emplace_back(s.at("name").get<std::string>(), s.at("ms").get<double>() * 1e3);
  StepTimes times = from_lists(steps);
  times.call_us = j.at("median_ms").get<double>() * 1e3;
  times.target = j.value("device", "");
  times.sizes = j.value("sizes", Sizes());
  return times;
}

std::string listed(const std::vector<std::string>& ids) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(ids.size(), kShown); ++i) text += (i ? ", '" : "'") + shown(ids[i]) + "'";
  return ids.size() > kShown ? text + " and " + std::to_string(ids.size() - kShown) + " more" : text;
}

std::string text_of(const Sizes& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes) text += (text.empty() ? "" : " ") + shown(name) + "=" + std::to_string(size);
  return text;
}

} // namespace

Result<StepTimes> read_step_times(const std::string& path) {
  TESSERA_ASSIGN(const std::string text, read_file(path));
  const Json j = Json::parse(text, nullptr, false);
  Diagnostic neither(ErrorCode::BadInput, "'" + shown(path) + "' holds no times of steps");
  neither.note("'tessera bench MODEL --profile --json FILE' writes them, and 'tessera bench MODEL --trace FILE'");
  try {
    if (j.is_object() && j.contains("traceEvents") && j.contains("otherData")) return from_trace(j);
    if (j.is_object() && j.contains("steps") && j.contains("median_ms")) return from_bench(j);
  } catch (const Json::exception& e) {
    return std::move(neither).note(e.what());
  }
  return neither;
}

Status add_measured(Json& report, const StepTimes& times, std::vector<std::string>& notes) {
  const Sizes sizes = report.at("sizes").get<Sizes>();
  if (!times.sizes.empty() && times.sizes != sizes)
    return Diagnostic(ErrorCode::BadInput,
                      "the times were measured at " + text_of(times.sizes) + ", the report is of " + text_of(sizes))
        .note("give both the same --shape");
  std::map<std::string, const StepTimes::Step*> by_id;
  for (const auto& s : times.steps) by_id.emplace(s.id, &s);
  std::vector<std::string> without;
  double sum = 0;
  size_t joined = 0;
  for (Json& s : report.at("steps")) {
    s.erase("measured_us");
    if (s.contains("inside")) continue; // its control step is measured as a whole
    const auto it = by_id.find(s.at("id").get<std::string>());
    if (it == by_id.end()) {
      without.push_back(s.at("id"));
      continue;
    }
    s["measured_us"] = it->second->median();
    sum += it->second->median();
    ++joined;
    by_id.erase(it);
  }
  if (joined == 0 && !times.steps.empty())
    return Diagnostic(ErrorCode::BadInput, "no step that was measured is a step of the report")
        .note("measured: " + listed({times.steps.front().id}) + "; reported: " + listed(without))
        .note("they are of other models, or were compiled with other options");
  std::vector<std::string> unknown;
  for (const auto& [id, step] : by_id) unknown.push_back(id);
  if (!unknown.empty())
    notes.push_back("measured and not in the report: " + listed(unknown) + ": it is of another plan");
  if (!without.empty()) notes.push_back("in the report and not measured: " + listed(without));
  if (const auto target = report.at("target").get<std::string>(); !times.target.empty() && times.target != target)
    notes.push_back("the times are of '" + shown(times.target) + "', the report is of '" + shown(target) + "'");
  report["totals"]["measured_us"] = times.call_us.value_or(sum);
  return {};
}

} // namespace tessera::command
