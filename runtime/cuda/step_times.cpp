#include "runtime/cuda/step_times.h"
#include "graph/support/stopwatch.h"
#include <algorithm>

namespace tessera::cuda {

Status StepTimes::mark(CUstream stream) {
  if (marks_ == events_.size()) {
    TESSERA_ASSIGN(auto event, Event::create(context_, true));
    events_.push_back(std::move(event));
  }
  recorded_ms_.resize(events_.size());
  recorded_ms_[marks_] = host_clock_ms();
  return events_[marks_++]->record(stream);
}

Status StepTimes::read(double ended_ms, std::vector<StepProfile>& steps) const {
  if (marks_ != 2 * steps.size() + 1) return {};
  std::vector<double> since_first(marks_);
  for (size_t m = 1; m < marks_; ++m) {
    TESSERA_ASSIGN(const double after, events_[m]->ms_since(*events_[m - 1]));
    since_first[m] = since_first[m - 1] + after;
  }
  double first = ended_ms - since_first.back();
  for (size_t m = 0; m < marks_; ++m) first = std::max(first, recorded_ms_[m] - since_first[m]);
  for (size_t s = 0; s < steps.size(); ++s) {
    steps[s].ms = since_first[2 * s + 1] - since_first[2 * s];
    steps[s].begin_ms = first + since_first[2 * s];
  }
  return {};
}

} // namespace tessera::cuda
