// Events before and behind each step of a call that is profiled.
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
  // Once the stream has been waited for.
  Status read(std::vector<StepProfile>& steps) const;

private:
  std::shared_ptr<Context> context_;
  std::vector<std::unique_ptr<Event>> events_; // kept from call to call
  size_t marks_ = 0;                           // of this call
};

} // namespace tessera::cuda
