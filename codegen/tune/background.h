// Tuning beside the calls of a running model, on one thread of its own.
//
//   a call ends        what ran, with its sizes, is counted; at `hot_calls` it becomes work
//   work               its kernels are tuned as `tessera tune` does it (tune.h), each candidate compiled when it is
//                      next, one at a time, on this thread; each measurement waits for the gate
//   the gate           opens when no call is under way, none was for `idle_seconds`, and what was measured before is at
//                      most `share` of the time; a measurement that a call came into is made again
//   a kernel has won   recorded, as ever; when the model's kernels are through, `renew` is told, which compiles it
//                      again
//
// A call never waits for any of this: it counts, in a few atomic operations, and at most leaves a note if a lock is
// free. Errors go to the log (TESSERA_LOG=perf) and nowhere else.
#pragma once
#include "codegen/tune/tune.h"
#include <atomic>
#include <condition_variable>
#include <thread>

namespace tessera {

// Time as the gate sees it; tests make up their own.
class TuningClock {
public:
  virtual ~TuningClock() = default;
  [[nodiscard]] virtual double now() = 0; // seconds, from any beginning
  // Sleeps. False: stop() was called, before or meanwhile.
  [[nodiscard]] virtual bool rest(double seconds) = 0;
  virtual void stop() = 0;
};
[[nodiscard]] std::shared_ptr<TuningClock> make_tuning_clock();

// When something may be measured. enter() and leave() are called by any thread, at the beginning and the end of a call
// of the model; the others by the one that measures.
class TuningGate {
public:
  TuningGate(std::shared_ptr<TuningClock> clock, double share, double idle_seconds)
      : clock_(std::move(clock)), share_(share), idle_(idle_seconds) {}
  void enter() {
    under_way_.fetch_add(1);
    calls_.fetch_add(1);
  }
  void leave() {
    last_end_.store(clock_->now());
    under_way_.fetch_sub(1);
  }
  // Until it opens. False: the clock was stopped.
  [[nodiscard]] bool wait();
  // What was measured since wait() is done. False: a call came into it.
  [[nodiscard]] bool undisturbed();

private:
  std::shared_ptr<TuningClock> clock_;
  const double share_, idle_;
  std::atomic<int> under_way_{0};
  std::atomic<uint64_t> calls_{0};
  std::atomic<double> last_end_{-1e30};
  uint64_t calls_before_ = 0;
  double opened_ = 0, next_ = -1e30; // next_: when the share allows the next one
};

struct BackgroundOptions {
  double share = 0.05;                  // of the time that measuring takes of the device, at most; in (0, 1]
  double idle_seconds = 0.002;          // without a call before a measurement
  int hot_calls = 3;                    // of the same executable with the same sizes, before it is worth it
  int64_t max_bytes = int64_t{1} << 30; // of a kernel's made-up data (MeasureOptions::max_bytes)
  int retries = 8;                      // of a measurement that calls come into; then the kernel is left
  TuneOptions tune;                     // `stop` and go_on_without_file are set here; `measurer` is for tests
  std::shared_ptr<TuningClock> clock;   // empty: the machine's
};

class BackgroundTuner {
public:
  struct Hooks {
    // How an executable was compiled; nothing, or one without a graph: its kernels are not tuned.
    std::function<std::shared_ptr<const Compiled>(const Executable&)> compiled;
    // Better schedules are known for it: its successor should be made. On the tuner's thread.
    std::function<Status(const Executable&, const CompileOptions&)> renew;
  };
  // `compile` is what the executables were compiled with.
  BackgroundTuner(CompileOptions compile, std::shared_ptr<TunedRecords> records, BackgroundOptions options,
                  Hooks hooks);
  ~BackgroundTuner(); // stops
  BackgroundTuner(const BackgroundTuner&) = delete;
  BackgroundTuner& operator=(const BackgroundTuner&) = delete;

  // Of executors' calls; see CallObserver.
  void begins() { gate_.enter(); }
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values);
  // Ends the thread; returns when the measurement or the kernel's compile under way is over. Calls may go on.
  void stop();
  // Until there is nothing to do.
  void settle();
  [[nodiscard]] int renewals() const { return renewals_; }

private:
  struct Seen {
    std::shared_ptr<const Executable> executable;
    CallSizes sizes;
    int64_t calls = 0;
    bool done = false;
  };
  using Key = std::pair<const Executable*, std::vector<int64_t>>;
  void work();
  void tune(const Executable& executable, const CallSizes& sizes);
  [[nodiscard]] bool knows_better(const Compiled& compiled, const TuneReport& report);
  [[nodiscard]] bool stopped() const { return stopped_.load(); }

  CompileOptions compile_; // for the background: one kernel at a time, given up when stopped
  std::shared_ptr<TunedRecords> records_;
  BackgroundOptions options_;
  Hooks hooks_;
  TuningGate gate_;
  std::atomic<bool> stopped_{false};
  std::atomic<int> renewals_{0};
  std::set<std::pair<const KernelWork*, std::string>> renewed_; // a model with a record; of the thread
  std::mutex mutex_;                                            // of what follows; held for moments
  std::condition_variable changed_;
  std::map<Key, Seen> seen_;
  bool working_ = false;
  std::thread thread_;
};

} // namespace tessera
