// tessera tune: kernels of a model measured with other schedules; and the file that remembers the winners.
#include "measure/tune/tune.h"
#include "base/file.h"
#include "base/temporary_folder.h"
#include "codegen/driver/devices.h"
#include "corpus.h"
#include "inputs.h"
#include "measure/tune/target.h"
#include <cstdio>

namespace tessera::command {

namespace {

struct TuneCommand {
  ModelOptions model;
  double budget = 60;
  int candidates = 24, samples = 0, seed = 1;
  bool again = false, list = false, clear = false;
  std::vector<std::string> corpus;
  int jobs = 4;
  std::string output, log, export_file, merge_file, pin, unpin;
  [[nodiscard]] bool on_records() const {
    return list || clear || !export_file.empty() || !merge_file.empty() || !pin.empty() || !unpin.empty();
  }
};

std::string_view text_of(TunedKernel::Outcome outcome) {
  switch (outcome) {
  case TunedKernel::Outcome::Tuned: return "tuned";
  case TunedKernel::Outcome::Default: return "default";
  case TunedKernel::Outcome::Known: return "known";
  case TunedKernel::Outcome::Left: return "left";
  }
  return "";
}

std::string microseconds(double us) { return us > 0 ? format_number(us, 1) + " us" : "-"; }

// ---- tuning
Json to_json(const TunedKernel& k) {
  Json j{{"name", k.name}, {"kernel", k.record.kernel.hex()}, {"uses", k.uses}, {"outcome", text_of(k.outcome)}};
  if (!k.note.empty()) j["note"] = k.note;
  if (!k.signature.empty()) j["signature"] = k.signature;
  j["schedule"] = k.schedule;
  j["extents"] = k.record.measured_at;
  j["default_us"] = k.record.default_us;
  j["tuned_us"] = k.record.tuned_us;
  j["wrong"] = k.wrong;
  j["rejected"] = k.rejected;
  j["measured"] = Json::array();
  for (const auto& m : k.measured)
    j["measured"].push_back({{"schedule", print(m.schedule)}, {"estimate_us", m.estimate_us}, {"us", m.us}});
  return j;
}

// All that was measured, for tools/fit: a line with the graph, and one for each kernel.
Status write_log(const std::string& file, const std::string& model, const Graph& graph, const Sizes& sizes,
                 const TuneReport& report) {
  std::string text = Json{{"model", model}, {"graph", print(graph)}}.dump() + "\n";
  for (const TunedKernel& k : report.kernels) {
    if (k.measured.empty()) continue;
    Json j{{"kernel", k.name}, {"key", k.record.kernel.hex()}, {"nest", k.nest}, {"sizes", sizes}};
    j["rows"] = Json::array();
    for (const auto& m : k.measured)
      j["rows"].push_back({name(m.schedule.kind), fields(m.schedule), m.us, m.registers});
    text += j.dump() + "\n";
  }
  return write_file(file, {text});
}

Result<Json> tune(const TuneCommand& o) {
  TESSERA_TRY(need_model(o.model.model, "tune"));
  TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
  TESSERA_ASSIGN(SessionOptions options, session_options(o.model, shapes));
  options.compile_only = true;
  options.use_tuned = false;
  options.executor.pool = ThreadPool::create(o.model.options.threads);
  options.compile.threads = options.executor.pool->threads();
  if (options.compile.device == "cuda" && options.compile.driver.empty())
    return Diagnostic(ErrorCode::Usage, "tuning measures on the GPU that is here: --arch is for compiling");
  const CompileOptions compile = options.compile;
  TESSERA_ASSIGN(auto session, open_session(o.model, std::move(options)));
  Progress progress;
  std::vector<std::string> notes;
  TESSERA_ASSIGN(Sizes sizes, choose_sizes(*session, {}, shapes, notes));
  for (const auto& n : notes) say_note(n);
  const Compiled& compiled = *session->variants().front()->compiled;
  CallSizes values;
  for (const auto& [name, size] : sizes)
    if (auto symbol = compiled.graph->env().find(name)) values[symbol->symbol_id()] = size;

  auto target = tuned_target(compile);
  TESSERA_CHECK(target.has_value(), "a device that is here has a name");
  TunedRecords records(compile.cache_dir, *target);
  for (const auto& w : records.warnings()) say_warning(w);
  TESSERA_ASSIGN(auto backend, make_backend(compile));
  TuneOptions tuning;
  tuning.budget_seconds = o.budget;
  tuning.candidates = static_cast<size_t>(o.candidates);
  tuning.samples = static_cast<size_t>(o.samples);
  tuning.seed = static_cast<uint64_t>(o.seed);
  tuning.again = o.again;
  tuning.progress = [&](const std::string& text) { progress.show(text); };
  TESSERA_ASSIGN(TuneReport report, tune_kernels(*compiled.graph, compiled.report.plan, compile, backend->device(),
                                                 values, records, tuning));
  progress.clear();
  if (!o.log.empty()) TESSERA_TRY(write_log(o.log, o.model.model, *compiled.graph, sizes, report));
  Json j{{"model", o.model.model}, {"device", target->device}, {"driver", target->driver}, {"sizes", sizes}};
  j["records"] = records.file();
  j["seconds"] = report.seconds;
  int tuned = 0, wrong = 0, left = 0, measured = 0;
  j["kernels"] = Json::array();
  for (const TunedKernel& k : report.kernels) {
    tuned += k.outcome == TunedKernel::Outcome::Tuned;
    left += k.outcome == TunedKernel::Outcome::Left;
    measured += k.outcome == TunedKernel::Outcome::Tuned || k.outcome == TunedKernel::Outcome::Default;
    wrong += k.wrong;
    j["kernels"].push_back(to_json(k));
  }
  j["measured"] = measured;
  j["tuned"] = tuned;
  j["left"] = left;
  j["wrong"] = wrong;
  return j;
}

std::string tune_text(const Json& j) {
  Table table({"kernel", "uses", "outcome", "default", "tuned", "gain", "schedule"}, {1, 3, 4, 5});
  std::string details;
  for (const auto& k : j["kernels"]) {
    double before = k["default_us"], after = k["tuned_us"];
    std::string gain = before > 0 && after < before ? format_number(100 * (1 - after / before), 0) + " %" : "";
    table.add({k["name"].get<std::string>(), k["uses"].dump(), k["outcome"].get<std::string>(), microseconds(before),
               microseconds(after), gain,
               k.contains("note") ? k["note"].get<std::string>() : k["schedule"].get<std::string>()});
    for (const auto& r : k["rejected"])
      details += "  " + shown(k["name"].get<std::string>()) + ": " + shown(r.get<std::string>()) + "\n";
  }
  std::string out = table.empty() ? "no kernels\n" : table.str();
  if (!details.empty()) out += "rejected\n" + details;
  return out + j["tuned"].dump() + " of " + j["measured"].dump() + " measured kernels have a better schedule, " +
         j["left"].dump() + " not measured; " + format_number(j["seconds"], 1) + " s; " +
         shown(j["records"].get<std::string>()) + "\n";
}

// ---- records
std::string sizes_text(const TunedRecord& r) {
  std::string text;
  for (int64_t n : r.measured_at) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text;
}

Result<Json> records(const TuneCommand& o) {
  TunedRecords all(o.model.options.cache_dir, {});
  for (const auto& w : all.warnings()) say_warning(w);
  Json j{{"records", all.file()}};
  std::vector<TunedRecord> more;
  if (!o.merge_file.empty()) {
    TESSERA_ASSIGN(std::string text, read_file(o.merge_file));
    TESSERA_ASSIGN(more, parse_records(text, o.merge_file));
  }
  int changed = 0;
  const std::string& prefix = o.pin.empty() ? o.unpin : o.pin;
  if (o.clear || !prefix.empty() || !more.empty())
    TESSERA_TRY(all.update([&](std::vector<TunedRecord>& now) {
      const size_t before = now.size();
      if (o.clear) std::erase_if(now, [](const TunedRecord& r) { return !r.pinned; });
      changed += static_cast<int>(before - now.size());
      merge_records(now, more);
      changed += static_cast<int>(more.size());
      for (TunedRecord& r : now)
        if (!prefix.empty() && r.kernel.hex().starts_with(prefix)) r.pinned = !o.pin.empty(), ++changed;
    }));
  if (!prefix.empty() && changed == 0)
    return Diagnostic(ErrorCode::Usage, "no record is of a kernel that begins with '" + prefix + "'")
        .note("'tessera tune --list' shows them");
  j["changed"] = changed;
  const std::vector<TunedRecord> now = all.all();
  if (!o.export_file.empty()) {
    TESSERA_TRY(write_file(o.export_file, {print_records(now)}));
  }
  j["list"] = Json::parse(print_records(now))["records"];
  if (o.model.json != "-" && o.list) {
    Table table({"kernel", "name", "device", "driver", "sizes", "default", "tuned", "schedule", ""}, {5, 6});
    for (const TunedRecord& r : now)
      table.add({r.kernel.hex().substr(0, 12), r.name, r.on.device, r.on.driver, sizes_text(r),
                 microseconds(r.default_us), microseconds(r.tuned_us),
                 std::string(r.is_default() ? "default" : name(r.schedule->kind)), r.pinned ? "pinned" : ""});
    say(table.empty() ? "no records\n" : table.str());
  } else if (o.model.json != "-") {
    say(shown(all.file()) + ": " + std::to_string(now.size()) + " records, " + std::to_string(changed) + " changed\n");
  }
  return j;
}

Result<Json> corpus(const TuneCommand& o) {
  if (o.output.empty())
    return Diagnostic(ErrorCode::Usage, "--corpus needs the file of records that it is to write: -o FILE");
  TESSERA_ASSIGN(const TemporaryFolder folder, TemporaryFolder::create("tessera-tune")); // of kernels and records
  CorpusOptions corpus;
  corpus.places = o.corpus;
  corpus.output = o.output;
  corpus.log = o.log;
  corpus.jobs = o.jobs;
  corpus.budget = o.budget;
  return tune_corpus(corpus, [&](const std::string& model, const std::string& log) {
    TuneCommand one = o;
    one.model.model = model;
    one.model.options.cache_dir = folder.path();
    one.log = log;
    return tune(one);
  });
}

int run(const TuneCommand& o) {
  if (o.on_records() + !o.model.model.empty() + !o.corpus.empty() != 1)
    return fail(Diagnostic(ErrorCode::Usage, "give a model to tune, --corpus, or one of --list, --export, --merge, "
                                             "--pin, --unpin, --clear"),
                o.model.json);
  auto report = o.on_records() ? records(o) : o.corpus.empty() ? tune(o) : corpus(o);
  if (!report.ok()) return fail(report.error(), o.model.json);
  if (!o.on_records() && o.model.json != "-") say(o.corpus.empty() ? tune_text(*report) : corpus_text(*report));
  return finish(kDone, o.model.json, *report);
}

} // namespace

void add_tune(CommandLine& line) {
  auto options = std::make_shared<TuneCommand>();
  Subcommand sub = line.add("tune", "measure other schedules of a model's kernels, and remember the fastest");
  add_model_options(sub, options->model);
  sub.declared("MODEL").required(false);
  sub.option("--budget", options->budget, "seconds; what moves most is tuned first").range(0.0, 86400.0).show_default();
  sub.option("--candidates", options->candidates, "schedules of a kernel to measure, at most")
      .range(2, 1000)
      .show_default();
  sub.option("--samples", options->samples, "further schedules of a kernel, drawn at random from all that are right")
      .range(0, 10000)
      .show_default();
  sub.option("--seed", options->seed, "of these").range(0, 1 << 30).show_default();
  sub.option("--log", options->log, "write all that was measured to this file, one JSON object a line (tools/fit)")
      .writes_file();
  sub.flag("--again", options->again, "kernels that have a record, too");
  sub.option("--corpus", options->corpus,
             "model file, or folder with such (repeatable): all are tuned, and the fastest schedules written to -o")
      .one_at_a_time();
  sub.option("-o,--output", options->output, "of --corpus: file of the target's measured schedules; what it has stays")
      .writes_file();
  sub.option("--jobs", options->jobs, "of --corpus: models that are compiled at a time").range(1, 256).show_default();
  sub.flag("--list", options->list, "show the records");
  sub.option("--export", options->export_file, "write the records to this file").writes_file();
  sub.option("--merge", options->merge_file, "add the records of this file; of two for the same the later stays");
  sub.option("--pin", options->pin,
             "pin the records of a kernel (its hash, or the beginning): valid for any driver and compiler");
  sub.option("--unpin", options->unpin, "unpin the records of a kernel");
  sub.flag("--clear", options->clear, "remove all records that are not pinned");
  sub.footer("Examples:\n"
             "  tessera tune model.onnx --shape batch=32 --shape seq=384 --budget 120\n"
             "  tessera tune --corpus models/ --device cuda -o h200.txt\n"
             "  tessera tune --list\n"
             "  tessera tune --export tuned.json\n"
             "  tessera tune --merge tuned.json --cache-dir /srv/cache");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
