#include "callers.h"
#include "base/guarded.h"
#include "inputs.h"
#include "measure.h"
#include "runtime/executor.h"
#include "runtime/variant.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <random>
#include <thread>

namespace tessera::command {

namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// The measurements of one caller, in milliseconds of each of its calls.
struct Calls {
  std::vector<double> latency; // from the moment when the request was due
  std::vector<double> call;    // from the call's beginning
  Clock::time_point last;      // end of the last call
  std::optional<Diagnostic> error;
};

// When the requests of an open loop are due: given out in order to callers that are free.
class Schedule {
public:
  Schedule(const CallersOptions& o, double seconds, uint64_t seed)
      : rate_(*o.rate), seconds_(seconds), poisson_(o.arrivals == "poisson"), random_(seed), gap_(rate_) {}
  // From the start; nothing: there are no more.
  [[nodiscard]] std::optional<Clock::duration> next() {
    const std::lock_guard lock(mutex_);
    const double at = poisson_ ? at_ : static_cast<double>(count_) / rate_;
    if (count_ > 0 && at >= seconds_) return std::nullopt; // one at least
    ++count_;
    at_ += poisson_ ? gap_(random_) : 0;
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at));
  }

private:
  const double rate_, seconds_;
  const bool poisson_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::exponential_distribution<double> gap_;
  double at_ = 0;
  int64_t count_ = 0;
};

Json summary(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  double sum = 0;
  for (const double v : ms) sum += v;
  return {{"mean", sum / static_cast<double>(ms.size())},
          {"p50", percentile(ms, 0.5)},
          {"p90", percentile(ms, 0.9)},
          {"p95", percentile(ms, 0.95)},
          {"p99", percentile(ms, 0.99)},
          {"max", ms.back()}};
}

} // namespace

Result<Json> bench_callers(const ModelOptions& model, const CallersOptions& o, const std::vector<std::string>& inputs,
                           uint64_t seed, double seconds, int warmup) {
  TESSERA_ASSIGN(auto shapes, parse_shapes(model.shapes));
  TESSERA_ASSIGN(SessionOptions options, session_options(model, shapes));
  options.executor.wait_for_plans = true;
  options.executor.pool = ThreadPool::create(model.options.threads);
  const int threads = options.executor.pool->threads();
  TESSERA_ASSIGN(auto session, open_session(model, std::move(options), inputs));
  TESSERA_ASSIGN(Tensors tensors, read_inputs(*session, inputs));
  std::vector<std::string> notes;
  TESSERA_ASSIGN(const Sizes sizes, choose_sizes(*session, tensors, shapes, notes));
  TESSERA_TRY(make_inputs(*session, sizes, seed, tensors));
  for (const auto& n : notes) say_note(n);

  const auto callers = static_cast<size_t>(std::max(1, o.callers));
  std::vector<std::unique_ptr<Executor>> executors;
  for (size_t c = 0; c < callers; ++c) {
    TESSERA_ASSIGN(auto executor, session->new_executor());
    TESSERA_TRY(executor->warm_up(tensors));
    executors.push_back(std::move(executor));
  }
  std::optional<Schedule> schedule;
  if (o.rate) schedule.emplace(o, seconds, seed);
  const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<Calls> results(callers);
  std::vector<char> is_ready(callers); // each its caller's
  std::atomic<bool> failed = false;
  std::latch ready(static_cast<std::ptrdiff_t>(callers)), go(1);
  Clock::time_point start;
  auto caller = [&](size_t c) -> Status {
    Calls& mine = results[c];
    for (int i = 0; i < warmup; ++i) {
      TESSERA_ASSIGN(auto outputs, executors[c]->run(tensors));
    }
    is_ready[c] = true;
    ready.count_down();
    go.wait();
    mine.last = start;
    while (!failed) {
      Clock::time_point due = Clock::now();
      if (schedule) {
        const auto next = schedule->next();
        if (!next) break;
        due = start + *next;
        std::this_thread::sleep_until(due);
      } else if (due - start >= length && !mine.call.empty()) {
        break;
      }
      const auto begin = Clock::now();
      TESSERA_ASSIGN(auto outputs, executors[c]->run(tensors));
      mine.last = Clock::now();
      mine.latency.push_back(ms_between(due, mine.last));
      mine.call.push_back(ms_between(begin, mine.last));
    }
    return {};
  };
  std::vector<std::thread> workers;
  for (size_t c = 0; c < callers; ++c)
    workers.emplace_back([&, c] {
      auto ended = guarded("calling the model", [&] { return caller(c); });
      if (ended.ok()) return;
      results[c].error = ended.error();
      failed = true;
      if (!is_ready[c]) ready.count_down();
    });
  Progress progress;
  progress.show(std::to_string(callers) + " callers");
  ready.wait();
  start = Clock::now();
  go.count_down();
  for (std::thread& w : workers) w.join();
  progress.clear();

  std::vector<double> latency, call;
  Clock::time_point end = start;
  for (const Calls& r : results) {
    if (r.error) return *r.error;
    latency.insert(latency.end(), r.latency.begin(), r.latency.end());
    call.insert(call.end(), r.call.begin(), r.call.end());
    end = std::max(end, r.last);
  }
  const double took = ms_between(start, end) / 1e3;
  Json j{{"model", model.model},
         {"device", session->variants().front()->executable->target},
         {"callers", callers},
         {"threads", threads},
         {"loop", o.rate ? "open" : "closed"}};
  if (o.rate) j["request_rate"] = *o.rate, j["arrivals"] = o.arrivals;
  j["sizes"] = sizes;
  j["requests"] = latency.size();
  j["seconds"] = took;
  j["requests_per_second"] = static_cast<double>(latency.size()) / took;
  j["latency_ms"] = summary(std::move(latency));
  j["call_ms"] = summary(std::move(call));
  return j;
}

std::string callers_text(const Json& j) {
  auto line = [](const Json& s) {
    auto ms = [&](const char* key) { return format_ms(s[key].get<double>()); };
    return "p50 " + ms("p50") + ", p90 " + ms("p90") + ", p95 " + ms("p95") + ", p99 " + ms("p99") + ", max " +
           ms("max") + ", mean " + ms("mean") + "\n";
  };
  const bool open = j["loop"] == "open";
  std::string out = format_number(j["requests_per_second"].get<double>(), 1) + " requests per second";
  if (open) out += " of " + format_number(j["request_rate"].get<double>(), 1);
  out += "  (" + j["requests"].dump() + " in " + format_number(j["seconds"].get<double>(), 2) + " s, " +
         j["callers"].dump() + (j["callers"] == 1 ? " caller, " : " callers, ") + j["device"].get<std::string>() +
         ", " + j["threads"].dump() + " threads)\n";
  out += (open ? "latency from when requests were due: " : "latency: ") + line(j["latency_ms"]);
  if (open) out += "of that the calls:                   " + line(j["call_ms"]);
  if (open && j["requests_per_second"].get<double>() < 0.98 * j["request_rate"].get<double>())
    out += "the rate is not reached: requests wait longer and longer, and latencies grow with --seconds\n";
  return out;
}

} // namespace tessera::command
