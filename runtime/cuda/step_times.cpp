#include "runtime/cuda/step_times.h"
#include "base/stopwatch.h"
#include <algorithm>
#include <chrono>

namespace tessera::cuda {

Status StepTimes::close_gate(CUstream stream) {
  static constexpr std::chrono::milliseconds kMax{20};
  auto gate = std::make_shared<Gate>();
  gate->closed = true;
  // The stream owns the gate, too: this may be gone when it gets there.
  auto owned = std::make_unique<std::shared_ptr<Gate>>(gate);
  auto wait = [](void* data) {
    const std::unique_ptr<std::shared_ptr<Gate>> held(static_cast<std::shared_ptr<Gate>*>(data));
    std::unique_lock lock((*held)->mutex);
    (*held)->opened.wait_for(lock, kMax, [&] { return !(*held)->closed; });
  };
  TESSERA_CUDA_TRY(*context_, "profiling", cuLaunchHostFunc, stream, wait, owned.get());
  (void)owned.release();
  gate_ = std::move(gate);
  return {};
}

void StepTimes::open_gate() {
  if (!gate_) return;
  {
    std::lock_guard lock(gate_->mutex);
    gate_->closed = false;
  }
  gate_->opened.notify_all();
  gate_.reset();
}

Status StepTimes::mark(CUstream stream) {
  if (marks_ == 0 && gated_) TESSERA_TRY(close_gate(stream));
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
