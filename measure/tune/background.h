// Background tuning: kernels of a running model are tuned on one separate thread, between the model's calls.
//
//   a call ends        the executable and its sizes are counted; at `hot_calls` calls they are queued for tuning
//   tuning             as `tessera tune` (tune.h); candidates are compiled one at a time on this thread, and each
//                      measurement waits for the gate
//   the gate           opens when no call is running, none has run for `idle_seconds`, and measuring has taken at most
//                      `share` of the time; a measurement during which a call started is repeated
//   a faster kernel    is recorded; after the model's last kernel, `renew` compiles the model again
//
// A call never waits for tuning: it updates a few atomic counters, and the table of calls only if its lock is free.
// Errors go to the log (TESSERA_LOG=perf) and nowhere else.
#pragma once
#include "base/fork.h"
#include "measure/tune/tune.h"
#include <atomic>
#include <condition_variable>
#include <thread>

namespace tessera {

// The gate's clock; tests supply a simulated one.
class TuningClock {
public:
  virtual ~TuningClock() = default;
  [[nodiscard]] virtual double now() = 0; // seconds since an arbitrary origin
  // Sleeps for `seconds`. Returns false if stop() was called before or during the sleep.
  [[nodiscard]] virtual bool rest(double seconds) = 0;
  virtual void stop() = 0;
};
[[nodiscard]] std::shared_ptr<TuningClock> make_tuning_clock();

// Decides when a measurement may run. Any thread calls enter() and leave(), at the start and the end of a call of the
// model; the measuring thread calls the other functions.
class TuningGate {
public:
  TuningGate(std::shared_ptr<TuningClock> clock, double share, double idle_seconds)
      : clock_(std::move(clock)), share_(share), idle_(idle_seconds) {}
  void enter() {
    running_.fetch_add(1);
    calls_.fetch_add(1);
  }
  void leave() {
    last_end_.store(clock_->now());
    running_.fetch_sub(1);
  }
  // Waits until the gate opens. Returns false if the clock was stopped.
  [[nodiscard]] bool wait();
  // Ends the measurement that began at wait(). Returns false if a call started during it.
  [[nodiscard]] bool undisturbed();

private:
  std::shared_ptr<TuningClock> clock_;
  const double share_, idle_;
  std::atomic<int> running_{0};
  std::atomic<uint64_t> calls_{0};
  std::atomic<double> last_end_{-1e30};
  uint64_t calls_before_ = 0;
  double opened_ = 0, next_ = -1e30; // next_: when `share` allows the next measurement
};

struct BackgroundOptions {
  double share = 0.05;                  // largest fraction of the device's time that measuring takes, in (0, 1]
  double idle_seconds = 0.002;          // time without a call before a measurement, in seconds
  int hot_calls = 3;                    // calls of one executable with the same sizes before it is tuned
  int64_t max_bytes = int64_t{1} << 30; // inputs and outputs of one kernel, in bytes (MeasureOptions::max_bytes)
  int retries = 8;                      // repetitions of a measurement that calls disturb; then the kernel is skipped
  TuneOptions tune;                     // `stop` and go_on_without_file are set here; `measurer` is for tests
  std::shared_ptr<TuningClock> clock;   // null: the steady clock
};

class BackgroundTuner {
public:
  struct Hooks {
    // Returns how an executable was compiled. Its kernels are not tuned if this is null or has no graph.
    std::function<std::shared_ptr<const Compiled>(const Executable&)> compiled;
    // Compiles the executable again, because faster schedules were recorded. Called on the tuner's thread.
    std::function<Status(const Executable&, const CompileOptions&)> renew;
  };
  // `compile`: the options with which the executables were compiled.
  BackgroundTuner(CompileOptions compile, std::shared_ptr<TunedRecords> records, BackgroundOptions options,
                  Hooks hooks);
  ~BackgroundTuner(); // stops
  BackgroundTuner(const BackgroundTuner&) = delete;
  BackgroundTuner& operator=(const BackgroundTuner&) = delete;

  // Called by executors; see ExecutableSource.
  void begins() { gate_.enter(); }
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values);
  // Ends the thread; returns after the current measurement or compilation. Calls may continue.
  void stop();
  // Waits until nothing is left to tune.
  void wait_idle();
  [[nodiscard]] int renewals() const { return renewals_; }

private:
  struct Seen {
    std::shared_ptr<const Executable> executable;
    CallSizes sizes;
    int64_t calls = 0;
    bool done = false;
  };
  using Key = std::pair<const Executable*, std::vector<int64_t>>;
  void wake(); // the mutex is held
  void work();
  void tune(const Executable& executable, const CallSizes& sizes);
  [[nodiscard]] bool has_faster_schedules(const Compiled& compiled, const TuneReport& report);
  [[nodiscard]] bool stopped() const { return stopped_.load(); }

  CompileOptions compile_; // compiles one kernel at a time and is cancelled by stop()
  std::shared_ptr<TunedRecords> records_;
  BackgroundOptions options_;
  Hooks hooks_;
  TuningGate gate_;
  std::atomic<bool> stopped_{false};
  std::atomic<int> renewals_{0};
  std::set<std::pair<const KernelWork*, std::string>> renewed_; // model and record; used by the thread only
  std::mutex mutex_;                                            // protects the fields below; held briefly
  std::condition_variable changed_;
  bool woken_ = false;
  const OfProcess process_;
  std::map<Key, Seen> seen_;
  bool working_ = false;
  std::thread thread_;
};

} // namespace tessera
