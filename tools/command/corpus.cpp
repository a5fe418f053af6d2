// tessera tune --corpus: measured schedules of many models, as a file that ships with a target. Each model is tuned in a
// process of its own, several at a time; they measure one after another.
#include "corpus.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "codegen/schedule/schedule_records.h"
#include "codegen/target/select.h"
#include "workers.h"
#include <algorithm>
#include <cmath>
#include <filesystem>

namespace tessera::command {
namespace {

namespace fs = std::filesystem;

bool is_model(const fs::path& p) { return p.extension() == ".onnx" || p.extension() == ".pt2"; }

Result<std::vector<std::string>> models_of(const std::vector<std::string>& places) {
  std::vector<std::string> out;
  for (const std::string& place : places) {
    std::error_code error;
    if (fs::is_directory(place, error)) {
      for (auto it = fs::recursive_directory_iterator(place, error); !error && it != fs::recursive_directory_iterator();
           it.increment(error))
        if (it->is_regular_file(error) && is_model(it->path())) out.push_back(it->path());
      if (error)
        return Diagnostic(ErrorCode::FileError, "reading the folder '" + place + "' failed: " + error.message());
    } else if (fs::exists(place, error)) {
      out.push_back(place);
    } else {
      return Diagnostic(ErrorCode::FileError, "--corpus: there is no file or folder '" + place + "'");
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (out.empty())
    return Diagnostic(ErrorCode::Usage, "--corpus: no .onnx or .pt2 file is there")
        .note("'tools/bench --device cuda --write FOLDER' writes models of the benchmark's suite, with --sweep random "
              "ones");
  return out;
}

// Reads the records of the file, all of which stay but those that are measured again.
Result<ScheduleRecords> read_records(const std::string& file) {
  if (!fs::exists(file)) return ScheduleRecords();
  TESSERA_ASSIGN(std::string text, read_file(file));
  return parse_schedule_records(text, file);
}

// Whole or not at all, whenever the process ends.
Status write_records(const std::string& file, const ScheduleRecords& records) {
  const std::string text = print_schedule_records(records);
  TESSERA_ASSIGN(NewFile out, NewFile::create(file));
  TESSERA_TRY(out.write(text.data(), text.size()));
  return out.commit(false);
}

} // namespace

Result<Json> tune_corpus(const CorpusOptions& o,
                         const std::function<Result<Json>(const std::string&, const std::string&)>& tune) {
  TESSERA_ASSIGN(const std::vector<std::string> models, models_of(o.places));
  TESSERA_ASSIGN(ScheduleRecords records, read_records(o.output));
  const size_t before = records.size();
  TESSERA_TRY(write_records(o.output, records)); // before any work: that it can be written
  Json j{{"models", models.size()}, {"records", o.output}, {"failed", Json::array()}};
  size_t done = 0, measured = 0, tuned = 0, wrong = 0;
  double gain = 0;
  Status written;
  const Stopwatch watch;
  auto take = [&](const std::string& model, const TaskEnd& end) {
    auto failed = [&](const std::string& why) {
      j["failed"].push_back({{"model", model}, {"why", why}});
      say_warning(model + ": " + why);
    };
    if (end.how != TaskEnd::How::Answered) return failed(end.text);
    const Json found = Json::parse(end.text, nullptr, false);
    if (found.is_discarded() || found.contains("error")) return failed(found.value("error", "no result"));
    for (const Json& k : found["kernels"]) {
      if (k["outcome"] != "tuned" && k["outcome"] != "default") continue; // another model has the same one
      MeasuredSchedule r;
      r.signature = k["signature"];
      r.extents = k["extents"].get<std::vector<int64_t>>();
      auto schedule = parse_schedule(k["schedule"].get<std::string>());
      if (!schedule.ok()) return failed(schedule.error().message);
      r.schedule = *schedule;
      r.us = k["tuned_us"];
      r.name = k["name"];
      ++measured;
      tuned += k["tuned_us"] < k["default_us"];
      gain += std::log(k["default_us"].get<double>() / r.us);
      wrong += k["wrong"].get<size_t>();
      records.add(std::move(r));
    }
  };
  auto log_of = [&](size_t task) { return o.log.empty() ? "" : o.log + "." + std::to_string(task); };
  WorkerOptions w;
  w.tasks = models.size();
  w.jobs = static_cast<size_t>(o.jobs);
  w.timeout = std::chrono::seconds(static_cast<int64_t>(o.budget) + 120);
  w.work = [&](size_t task) {
    auto found = tune(models[task], log_of(task));
    return found.ok() ? found->dump() : Json{{"error", found.error().message}}.dump();
  };
  w.done = [&](size_t task, const TaskEnd& end) {
    take(models[task], end);
    say("[" + std::to_string(++done) + "/" + std::to_string(models.size()) + "] " + shown(models[task]) + ", " +
        format_ms(end.ms) + "\n");
    // Often enough that little is lost when it is interrupted.
    if (written.ok() && (done % 16 == 0 || done == models.size())) written = write_records(o.output, records);
    return true;
  };
  TESSERA_TRY(run_in_workers(w));
  std::string log;
  for (size_t task = 0; !o.log.empty() && task < models.size(); ++task) {
    if (!fs::exists(log_of(task))) continue; // nothing of that model was measured
    TESSERA_ASSIGN(std::string part, read_file(log_of(task)));
    log += part;
    std::error_code ignored;
    fs::remove(log_of(task), ignored);
  }
  if (!o.log.empty()) TESSERA_TRY(write_file(o.log, {log}));
  if (!written.ok()) return std::move(written).take_error();
  j["kernels"] = measured;
  j["tuned"] = tuned;
  j["wrong"] = wrong;
  j["gain"] = measured ? std::exp(gain / static_cast<double>(measured)) : 1.0;
  j["added"] = records.size() - before;
  j["size"] = records.size();
  j["seconds"] = watch.seconds();
  return j;
}

std::string corpus_text(const Json& j) {
  return j["kernels"].dump() + " kernels of " + j["models"].dump() + " models measured, " + j["tuned"].dump() +
         " of them faster than by the cost model, on the mean of all by " +
         format_number(100 * (j["gain"].get<double>() - 1), 1) + " %; " + std::to_string(j["failed"].size()) +
         " models failed; " + format_number(j["seconds"], 1) + " s\n" + shown(j["records"].get<std::string>()) + ": " +
         j["size"].dump() + " records, " + j["added"].dump() + " of them new\n";
}

} // namespace tessera::command
