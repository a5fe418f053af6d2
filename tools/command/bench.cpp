// tessera bench: how long a call takes, what starting costs, and how near the memory's ceiling the compiled part comes.
#include "base/stopwatch.h"
#include "base/temporary_folder.h"
#include "callers.h"
#include "codegen/load/load.h"
#include "explain.h"
#include "measure.h"
#include "requests.h"
#include "runtime/variant.h"
#include "trace.h"
#include <algorithm>
#include <cstring>

namespace tessera::command {

namespace {

struct BenchOptions {
  ModelOptions model;
  std::vector<std::string> inputs;
  double seconds = 2;
  int warmup = 3, min_runs = 5;
  uint64_t seed = 0;
  bool no_cold = false, profile = false, nvtx = false;
  std::string trace; // file
  RequestOptions requests;
  CallersOptions callers;
};

// Bytes read and written per second by a parallel copy that moves as many bytes as the model, up to 512 MB.
Result<double> copy_bandwidth(ThreadPool& pool, int64_t moved) {
  // The copy moves as many bytes as the model, so that both sit in the same level of cache; they are touched
  // beforehand.
  const int64_t kBytes = std::clamp<int64_t>(moved / 2, int64_t{1} << 20, int64_t{256} << 20);
  TESSERA_ASSIGN(auto from, allocate_bytes(kBytes));
  TESSERA_ASSIGN(auto to, allocate_bytes(kBytes));
  std::memset(from.get(), 1, static_cast<size_t>(kBytes));
  std::memset(to.get(), 2, static_cast<size_t>(kBytes));
  std::vector<double> times;
  for (int i = 0; i < 21; ++i) {
    const Stopwatch watch;
    pool.parallel_for(kBytes, int64_t{1} << 20, [&](int64_t begin, int64_t end, int) {
      std::memcpy(to.get() + begin, from.get() + begin, static_cast<size_t>(end - begin));
    });
    times.push_back(watch.ms());
  }
  std::sort(times.begin(), times.end());
  return 2.0 * static_cast<double>(kBytes) / (times[times.size() / 2] / 1e3);
}

// Calls whose steps are timed, after those that time the call: the steps' medians, and the first calls as a trace.
Status profile_steps(const BenchOptions& o, const Timed& timed, Session& session, const Tensors& tensors,
                     StepTimes& steps, ChromeTrace& trace) {
  constexpr int kTraced = 5; // the first call apart, which plans
  RunStats stats;
  int runs = 0;
  for (const Stopwatch watch; runs < o.min_runs || watch.seconds() < o.seconds / 2; ++runs) {
    TESSERA_TRY(timed.call(session, tensors, &stats));
    steps.add(stats);
    if (runs < kTraced) trace.add(stats);
  }
  return {};
}

Result<Json> bench(const BenchOptions& o) {
  TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
  TESSERA_ASSIGN(SessionOptions options, session_options(o.model, shapes));
  options.executor.profile = o.profile;
  options.executor.profile_submitted = o.trace.empty(); // a trace shows when steps really began
  options.executor.wait_for_plans = true;               // what is timed is what stays
  TESSERA_TRY(add_ranges(o.nvtx, options.executor));
  options.executor.pool = ThreadPool::create(o.model.options.threads);
  const bool compiled_file = is_compiled_file(o.model.model);
  Progress progress;
  Json j;
  j["model"] = o.model.model;
  j["compiled_file"] = compiled_file;
  j["threads"] = options.executor.pool->threads();
  if (!o.no_cold && options.compile.cache && !compiled_file) {
    progress.show("compiling from nothing");
    auto folder = TemporaryFolder::create("tessera-bench"); // an empty cache; without a folder there is none at all
    SessionOptions cold = options;
    cold.compile.cache = folder.ok();
    if (folder.ok()) cold.compile.cache_dir = folder->path();
    const Stopwatch watch;
    TESSERA_ASSIGN(auto session, open_for_inputs(o.model.model, cold, o.inputs));
    j["cold_start_ms"] = watch.ms();
  }
  progress.show(compiled_file ? "loading" : "compiling");
  // The first one fills the cache, the second is a start that finds everything there.
  if (!compiled_file) {
    TESSERA_ASSIGN(auto filler, open_for_inputs(o.model.model, options, o.inputs));
  }
  const Stopwatch warm;
  TESSERA_ASSIGN(auto session, Session::open(o.model.model, options));
  j["warm_start_ms"] = warm.ms();
  const auto variant = session->variants().front();
  const Compiled& compiled = *variant->compiled;
  const auto& r = compiled.report;
  j["warm_start"] = {{"plan_from_cache", variant->from_plan}, // then the rest is of a compile that `explain` needs
                     {"import_ms", r.import_ms},
                     {"passes_ms", r.passes_ms},
                     {"fusion_ms", r.fusion_ms},
                     {"codegen_ms", r.codegen_ms},
                     {"link_ms", r.link_ms},
                     {"cache_hits", r.cache_hits},
                     {"cache_misses", r.cache_misses}};

  TESSERA_ASSIGN(Tensors tensors, read_inputs(*session, o.inputs));
  std::vector<std::string> notes;
  TESSERA_ASSIGN(Sizes sizes, choose_sizes(*session, tensors, shapes, notes));
  TESSERA_TRY(make_inputs(*session, sizes, o.seed, tensors));
  progress.clear();
  for (const auto& n : notes) say_note(n);
  j["sizes"] = sizes;

  RunStats stats;
  bool gpu = is_gpu_target(compiled.executable->target);
  j["device"] = compiled.executable->target;
  const Stopwatch first;
  TESSERA_ASSIGN(Timed timed, Timed::create(*session, tensors, gpu, stats));
  j["first_run_ms"] = first.ms();
  j["arena_bytes"] = stats.arena_bytes;
  for (int i = 1; i < o.warmup; ++i) TESSERA_TRY(timed.call(*session, tensors, nullptr));
  std::vector<double> times;
  for (const Stopwatch watch; static_cast<int>(times.size()) < o.min_runs || watch.ms() < o.seconds * 1e3;) {
    TESSERA_ASSIGN(double took, timed.call(*session, tensors, nullptr));
    times.push_back(took);
    if (times.size() % 16 == 0) progress.show(std::to_string(times.size()) + " runs");
  }
  progress.clear();
  std::sort(times.begin(), times.end());
  double median = percentile(times, 0.5);
  j["runs"] = times.size();
  j["median_ms"] = median;
  j["min_ms"] = times.front();
  j["p90_ms"] = percentile(times, 0.9);
  j["p99_ms"] = percentile(times, 0.99);
  j["max_ms"] = times.back();

  j["variant_counts"] = variant_counts(o.model.options.policy, *session);
  TESSERA_ASSIGN(Json report, explain_json(*session, sizes, false));
  StepTimes steps;
  if (o.profile) {
    ChromeTrace trace(report);
    trace.add(stats);
    progress.show("timing the steps");
    TESSERA_TRY(profile_steps(o, timed, *session, tensors, steps, trace));
    progress.clear();
    if (!o.trace.empty()) {
      TESSERA_TRY(write_text(o.trace, trace.json().dump(-1, ' ', true, Json::error_handler_t::replace) + "\n"));
      j["trace"] = o.trace;
    }
  }
  auto total = [&](const char* what) -> std::optional<int64_t> {
    const Json& value = report["totals"][what]["at_sizes"];
    return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
  };
  if (auto moved = total("bytes")) {
    progress.show("measuring the memory");
    double bandwidth = 0;
    if (gpu) {
      TESSERA_ASSIGN(double copy, timed.watch->copy_ms(std::min<int64_t>(*moved, int64_t{8} << 30)));
      bandwidth = static_cast<double>(std::min<int64_t>(*moved, int64_t{8} << 30)) / (copy / 1e3);
    } else {
      TESSERA_ASSIGN(bandwidth, copy_bandwidth(*options.executor.pool, *moved));
    }
    progress.clear();
    double floor_ms = static_cast<double>(*moved) / bandwidth * 1e3;
    j["bytes_moved"] = *moved;
    j["copy_bytes_per_second"] = bandwidth;
    j["memory_floor_ms"] = floor_ms;
    j["share_of_memory_ceiling"] = floor_ms / median;
    const double flops = static_cast<double>(total("library_flops").value_or(0));
    j["library_flops"] = flops;
    j["library_flops_per_second"] = flops / (median / 1e3);
  }
  if (o.profile) j["steps"] = Json::array();
  for (const auto& step : steps.steps) {
    const double ms = step.median() / 1e3;
    j["steps"].push_back({{"name", step.id}, {"ms", ms}, {"bytes", step.bytes}});
    if (ms > 0 && j.contains("copy_bytes_per_second"))
      j["steps"].back()["share_of_copy_bandwidth"] =
          static_cast<double>(step.bytes) / j["copy_bytes_per_second"].get<double>() * 1e3 / ms;
  }
  return j;
}

std::string bench_text(const Json& j) {
  auto ms = [&](const char* key) { return format_ms(j[key].get<double>()); };
  std::string out = "median " + ms("median_ms") + "  (min " + ms("min_ms") + ", p90 " + ms("p90_ms") + ", p99 " +
                    ms("p99_ms") + ", max " + ms("max_ms") + "; " + j["runs"].dump() + " runs, " +
                    j["device"].get<std::string>() + ", " + j["threads"].dump() + " threads)\n";
  out += "start: ";
  if (j.contains("cold_start_ms")) out += ms("cold_start_ms") + " from nothing, ";
  out += ms("warm_start_ms") + (j["compiled_file"] ? " from the file" : " from the cache") + "; first run " +
         ms("first_run_ms") + "\n";
  out += "arena " + format_bytes(j["arena_bytes"].get<double>());
  if (j.contains("bytes_moved")) {
    out += "; moves " + format_bytes(j["bytes_moved"].get<double>()) + ", a copy of that takes " +
           ms("memory_floor_ms") + ": " + format_number(100 * j["share_of_memory_ceiling"].get<double>(), 0) +
           " % of the memory's ceiling";
    if (double flops = j["library_flops_per_second"].get<double>(); flops > 0)
      out += "; products and convolutions " + format_number(flops / 1e9, 1) + " GFLOP/s over the whole run";
  }
  out += "\n" + variants_text(j["variant_counts"]) + "\n";
  if (j.contains("steps")) {
    std::vector<Json> steps = j["steps"];
    std::stable_sort(steps.begin(), steps.end(), [](const Json& a, const Json& b) { return a["ms"] > b["ms"]; });
    Table table({"step", "time", "share", "bytes", "of copy bandwidth"}, {1, 2, 3, 4});
    for (const auto& s : steps)
      table.add({s["name"].get<std::string>(), format_ms(s["ms"].get<double>()),
                 format_number(100 * s["ms"].get<double>() / j["median_ms"].get<double>(), 1) + " %",
                 format_bytes(s["bytes"].get<double>()),
                 format_number(100 * s.value("share_of_copy_bandwidth", 0.0), 0) + " %"});
    out += table.str("  ");
  }
  return out;
}

int run(BenchOptions o) {
  if (!o.requests.ranges.empty()) {
    o.requests.seed = o.seed;
    auto report = bench_requests(o.model, o.requests);
    if (!report.ok()) return fail(report.error(), o.model.json);
    if (o.model.json != "-") say(requests_text(*report));
    return finish(kDone, o.model.json, *report);
  }
  if (o.callers.given()) {
    auto report = bench_callers(o.model, o.callers, o.inputs, o.seed, o.seconds, o.warmup);
    if (!report.ok()) return fail(report.error(), o.model.json);
    if (o.model.json != "-") say(callers_text(*report));
    return finish(kDone, o.model.json, *report);
  }
  o.profile = o.profile || !o.trace.empty();
  auto report = bench(o);
  if (!report.ok()) return fail(report.error(), o.model.json);
  if (o.model.json != "-") say(bench_text(*report));
  return finish(kDone, o.model.json, *report);
}

} // namespace

void add_bench(CommandLine& line) {
  auto options = std::make_shared<BenchOptions>();
  Subcommand sub = line.add("bench", "measure a model: time of a call, of starting, share of the memory's ceiling");
  add_model_options(sub, options->model);
  sub.option("--input", options->inputs, "NAME=FILE.npy (repeatable); inputs not given are random").one_at_a_time();
  sub.option("--seconds", options->seconds, "measure for so long").range(0.0, 3600.0).show_default();
  sub.option("--warmup", options->warmup, "runs before measuring").range(1, 100000).show_default();
  sub.option("--min-runs", options->min_runs, "measured runs at least").range(1, 1000000).show_default();
  sub.option("--seed", options->seed, "of random inputs").show_default();
  sub.flag("--no-cold", options->no_cold, "leave the start with an empty cache out");
  sub.flag("--profile", options->profile, "show each step's time and share of the copy bandwidth");
  sub.flag("--nvtx", options->nvtx, kNvtxHelp);
  sub.option("--trace", options->trace,
             "write the first calls and their steps to this file as a Chrome trace, which Perfetto opens")
      .writes_file();
  sub.group("Load");
  auto callers = sub.option("--concurrency", options->callers.callers,
                            "so many callers at a time, each with a context of its own: requests per second, latency")
                     .range(1, 4096);
  auto rate = sub.option("--request-rate", options->callers.rate,
                         "requests per second that come whatever calls take (callers: --concurrency, else 1); latency "
                         "counts from when a request is due")
                  .positive();
  sub.option("--arrivals", options->callers.arrivals, "with --request-rate: evenly, or at random")
      .one_of({"constant", "poisson"})
      .show_default();
  sub.group("Sizes that vary");
  sub.option("--vary", options->requests.ranges,
             "DIM=MIN..MAX (repeatable): requests of random sizes instead, each twice: what a new shape costs")
      .one_at_a_time()
      .excludes(callers)
      .excludes(rate);
  sub.option("--requests", options->requests.requests, "with --vary: how many").range(1, 10000000).show_default();
  sub.option("--check", options->requests.checks,
             "with --vary: so many results next to a fresh compile for their sizes")
      .range(0, 100000)
      .show_default();
  sub.group("");
  sub.footer("Examples:\n"
             "  tessera bench model.onnx --shape batch=1 --shape seq=128 --threads 2\n"
             "  tessera bench model.onnx --shape pixels=8x3x224x224 --profile --json bench.json\n"
             "  tessera bench model.onnx --vary batch=1..32 --vary seq=1..512 --requests 1000\n"
             "  tessera bench model.onnx --concurrency 4 --threads 1\n"
             "  tessera bench model.onnx --concurrency 4 --threads 1 --request-rate 200 --arrivals poisson\n"
             "  tessera bench model.onnx --trace trace.json    then open it at https://ui.perfetto.dev");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
