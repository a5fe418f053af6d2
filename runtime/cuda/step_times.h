// Events before and behind each step of a call that is profiled, and one behind all of them.
//
// A GPU's events have no time on the host's clock, only differences. The last event passes just before the host returns
// from waiting for it: all are put on the host's clock by that, unless this would let one pass before it was recorded.
#pragma once
#include "runtime/cuda/stream.h"
#include "runtime/run.h"

namespace tessera::cuda {

class StepTimes {
public:
  explicit StepTimes(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  void clear() { marks_ = 0; }
  [[nodiscard]] bool empty() const { return marks_ == 0; }
  Status mark(CUstream stream);
  // Once the stream has been waited for, until ended_ms of the host's clock: two marks for each step, then the last one.
  Status read(double ended_ms, std::vector<StepProfile>& steps) const;

private:
  std::shared_ptr<Context> context_;
  std::vector<std::unique_ptr<Event>> events_; // kept from call to call
  std::vector<double> recorded_ms_;            // when the host recorded them
  size_t marks_ = 0;                           // of this call
};

} // namespace tessera::cuda
