#include "runtime/cuda/step_times.h"

namespace tessera::cuda {

Status StepTimes::mark(CUstream stream) {
  if (marks_ == events_.size()) {
    TESSERA_ASSIGN(auto event, Event::create(context_, true));
    events_.push_back(std::move(event));
  }
  return events_[marks_++]->record(stream);
}

Status StepTimes::read(std::vector<StepProfile>& steps) const {
  for (size_t s = 0; s < steps.size() && 2 * s + 1 < marks_; ++s) {
    TESSERA_ASSIGN(steps[s].ms, events_[2 * s + 1]->ms_since(*events_[2 * s]));
  }
  return {};
}

} // namespace tessera::cuda
