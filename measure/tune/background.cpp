#include "measure/tune/background.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "codegen/driver/devices.h"
#include <algorithm>
#include <chrono>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tessera {
namespace {

constexpr size_t kMaxSeen = 256; // pairs of executable and sizes; further ones are not tuned
constexpr int kNice = 10;

class SteadyClock final : public TuningClock {
public:
  double now() override { return watch_.seconds(); }
  bool rest(double seconds) override {
    std::unique_lock lock(mutex_);
    wait_outside_for(lock, changed_, std::chrono::duration<double>(seconds), [&] { return stopped_; });
    return !stopped_;
  }
  void stop() override {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

private:
  const Stopwatch watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

// Forwards to another measurer when the gate is open.
class GatedMeasurer final : public Measurer {
public:
  GatedMeasurer(std::unique_ptr<Measurer> inner, TuningGate& gate, int retries)
      : inner_(std::move(inner)), gate_(gate), retries_(retries) {}
  Status prepare(size_t candidate) override { return inner_->prepare(candidate); }
  Result<double> time_us(size_t candidate) override {
    TESSERA_TRY(inner_->prepare(candidate));
    for (int i = 0; i <= retries_; ++i) {
      if (!gate_.wait()) return stopped();
      auto us = inner_->time_us(candidate);
      if (gate_.undisturbed() || !us.ok()) return us;
    }
    return Diagnostic(ErrorCode::Cancelled, "calls of the model disturbed each of its measurements");
  }
  Result<std::string> difference(size_t candidate) override {
    TESSERA_TRY(inner_->prepare(candidate));
    if (!gate_.wait()) return stopped();
    auto out = inner_->difference(candidate);
    (void)gate_.undisturbed(); // other work on the device does not change results
    return out;
  }

private:
  static Diagnostic stopped() { return {ErrorCode::Cancelled, "tuning was stopped"}; }
  std::unique_ptr<Measurer> inner_;
  TuningGate& gate_;
  int retries_;
};

void log(const std::string& text) { TESSERA_LOGF(LogChannel::Perf, "background tuning: " + text); }
void log_error(const Diagnostic& error) noexcept {
  (void)guarded("logging", [&]() -> Status {
    log(error.str());
    return {};
  });
}

} // namespace

std::shared_ptr<TuningClock> make_tuning_clock() { return std::make_shared<SteadyClock>(); }

bool TuningGate::wait() {
  for (;;) {
    calls_before_ = calls_.load();
    const double now = clock_->now(), quiet_until = last_end_.load() + idle_;
    double rest = std::max(next_ - now, quiet_until - now);
    if (running_.load() > 0) rest = std::max(rest, idle_);
    if (rest <= 0) {
      opened_ = now;
      return clock_->rest(0);
    }
    if (!clock_->rest(rest)) return false;
  }
}

bool TuningGate::undisturbed() {
  const double now = clock_->now();
  next_ = now + (now - opened_) * (1 / share_ - 1);
  return calls_.load() == calls_before_;
}

BackgroundTuner::BackgroundTuner(CompileOptions compile, std::shared_ptr<TunedRecords> records,
                                 BackgroundOptions options, Hooks hooks)
    : compile_(std::move(compile)), records_(std::move(records)), options_(std::move(options)),
      hooks_(std::move(hooks)), gate_(options_.clock ? options_.clock : options_.clock = make_tuning_clock(),
                                      options_.share, options_.idle_seconds) {
  compile_.jobs = 1;
  compile_.cancelled = [this] { return stopped(); };
  TuneOptions& tune = options_.tune;
  tune.budget_seconds = 1e18;
  tune.stop = [this] { return stopped(); };
  tune.go_on_without_file = true;
  tune.measurer = [this, inner = tune.measurer](const MeasuredNest& what) -> Result<std::unique_ptr<Measurer>> {
    TESSERA_ASSIGN(auto measurer, inner ? inner(what) : make_measurer(what, compile_, {true, options_.max_bytes}));
    return std::unique_ptr<Measurer>(std::make_unique<GatedMeasurer>(std::move(measurer), gate_, options_.retries));
  };
  thread_ = std::thread([this] {
    // Compilation runs at low priority. (On Linux each thread has its own.)
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
    auto worked = guarded("tuning in the background", [this]() -> Status {
      work();
      return {};
    });
    if (!worked.ok()) log_error(worked.error()); // calls continue
    std::lock_guard lock(mutex_);
    working_ = false;
    stopped_ = true;
    changed_.notify_all();
  });
}

BackgroundTuner::~BackgroundTuner() { stop(); }

void BackgroundTuner::stop() {
  if (!process_.here()) return; // its thread is another process's
  stopped_ = true;
  options_.clock->stop();
  {
    std::lock_guard lock(mutex_);
    wake();
  }
  if (thread_.joinable()) thread_.join();
}

void BackgroundTuner::wake() {
  woken_ = true;
  changed_.notify_all();
}

void BackgroundTuner::wait_idle() {
  if (!process_.here()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return stopped() || (!working_ && std::none_of(seen_.begin(), seen_.end(), [&](const auto& s) {
             return !s.second.done && s.second.calls >= options_.hot_calls;
           }));
  });
}

void BackgroundTuner::ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
                            std::span<const int64_t> values) {
  gate_.leave();
  if (!ran || stopped() || !process_.here()) return;
  auto counted = guarded("counting a call", [&]() -> Status {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return {}; // another call will do
    Key key{ran.get(), {values.begin(), values.end()}};
    auto it = seen_.find(key);
    if (it == seen_.end()) {
      if (seen_.size() >= kMaxSeen) return {};
      Seen seen{ran, {}, 0, false};
      for (size_t i = 0; i < symbols.size(); ++i) seen.sizes[symbols[i].symbol_id()] = values[i];
      it = seen_.emplace(std::move(key), std::move(seen)).first;
    }
    if (++it->second.calls == options_.hot_calls) wake();
    return {};
  });
  if (!counted.ok()) log_error(counted.error());
}

void BackgroundTuner::work() {
  std::unique_lock lock(mutex_);
  while (!stopped()) {
    // The most frequently called first.
    Seen* next = nullptr;
    for (auto& [key, seen] : seen_)
      if (!seen.done && seen.calls >= options_.hot_calls && (!next || seen.calls > next->calls)) next = &seen;
    if (!next) {
      working_ = false;
      changed_.notify_all();
      woken_ = false;
      wait_outside(lock, changed_, [&] { return woken_ || stopped(); });
      continue;
    }
    working_ = next->done = true;
    const auto executable = next->executable; // keeps it alive: its entry may be erased
    const CallSizes sizes = next->sizes;
    lock.unlock();
    tune(*executable, sizes);
    lock.lock();
  }
}

void BackgroundTuner::tune(const Executable& executable, const CallSizes& sizes) {
  const auto compiled = hooks_.compiled(executable);
  if (!compiled || !compiled->graph) return;
  auto backend = make_backend(compile_);
  if (!backend.ok()) return log(backend.error().str());
  auto report = tune_kernels(*compiled->graph, compiled->report.plan, compile_, (*backend)->device(), sizes, *records_,
                             options_.tune);
  if (!report.ok()) return log(report.error().str());
  for (const Diagnostic& d : report->unwritten) log("a record was not written: " + d.str());
  for (const TunedKernel& k : report->kernels) {
    if (k.outcome == TunedKernel::Outcome::Tuned) log(k.name + ": " + measured_text(k.record) + " by " + k.schedule);
    if (k.outcome == TunedKernel::Outcome::Left) log(k.name + " is not tuned: " + k.note);
    for (const std::string& why : k.rejected) log(k.name + ": " + why);
  }
  if (stopped() || !has_faster_schedules(*compiled, *report)) return;
  auto renewed = hooks_.renew(executable, compile_);
  if (!renewed.ok()) return log("the model keeps its kernels: " + renewed.error().str());
  ++renewals_;
  // Calls now run the new executable, which has its own count.
  std::lock_guard lock(mutex_);
  std::erase_if(seen_, [&](const auto& s) { return s.first.first == &executable; });
}

// True if a record exists that the compiled code does not use, and for which it was not compiled again before.
bool BackgroundTuner::has_faster_schedules(const Compiled& compiled, const TuneReport& report) {
  bool better = false;
  for (const TunedKernel& k : report.kernels) {
    using Outcome = TunedKernel::Outcome;
    if ((k.outcome != Outcome::Tuned && k.outcome != Outcome::Known) || k.record.is_default()) continue;
    const std::string text = measured_text(k.record);
    for (const KernelReport& r : compiled.report.kernels) {
      if (r.name != k.name || std::find(r.tuned.begin(), r.tuned.end(), text) != r.tuned.end()) continue;
      better = renewed_.emplace(compiled.work.get(), k.record.kernel.hex() + " " + text).second || better;
    }
  }
  return better;
}

} // namespace tessera
