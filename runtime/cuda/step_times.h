// Events before and behind each step of a call that is profiled, and one behind all of them.
//
// A GPU's events have no time on the host's clock, only differences. The last event passes just before the host returns
// from waiting for it: all are put on the host's clock by that, unless this would let one pass before it was recorded.
//
// Where submitting a step takes the host longer than the step takes the GPU, the time between its events is the host's.
// A gate in front of the first event holds the stream until all steps are submitted, or, since the driver may wait for
// the stream before, for some milliseconds.
#pragma once
#include "runtime/cuda/stream.h"
#include "runtime/run.h"
#include <condition_variable>
#include <mutex>

namespace tessera::cuda {

class StepTimes {
public:
  StepTimes(std::shared_ptr<Context> context, bool gated) : context_(std::move(context)), gated_(gated) {}
  ~StepTimes() { open_gate(); }
  StepTimes(const StepTimes&) = delete;
  StepTimes& operator=(const StepTimes&) = delete;
  void clear() { open_gate(), marks_ = 0; }
  [[nodiscard]] bool empty() const { return marks_ == 0; }
  Status mark(CUstream stream);
  // Lets the steps begin. Before the host waits for the stream.
  void open_gate();
  // Once the stream has been waited for, until ended_ms of the host's clock: two marks for each step, then the last one.
  Status read(double ended_ms, std::vector<StepProfile>& steps) const;

private:
  struct Gate {
    std::mutex mutex;
    std::condition_variable opened;
    bool closed = false;
  };
  Status close_gate(CUstream stream);

  std::shared_ptr<Context> context_;
  bool gated_;
  std::shared_ptr<Gate> gate_;                 // the one in front of this call's steps
  std::vector<std::unique_ptr<Event>> events_; // kept from call to call
  std::vector<double> recorded_ms_;            // when the host recorded them
  size_t marks_ = 0;                           // of this call
};

} // namespace tessera::cuda
