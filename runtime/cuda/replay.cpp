#include "runtime/cuda/replay.h"
#include "base/log.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

// A graph that still runs is freed when it has.
void drop(const Context& context, Recording& recording) {
  if (recording.graph) context.driver().cuGraphExecDestroy(std::exchange(recording.graph, nullptr));
}

} // namespace

Replays::Replays(std::shared_ptr<Context> context, std::shared_ptr<Recorder> recorder, std::shared_ptr<GraphRoom> room,
                 size_t steps, Recorder::Put put)
    : context_(std::move(context)), recorder_(std::move(recorder)), room_(std::move(room)), steps_(steps),
      put_(std::move(put)) {}

Replays::~Replays() { drop_all(); }

void Replays::drop_all() {
  recorder_->forget(this);
  Context::Current current(*context_);
  for (auto& kept : kept_) drop(*context_, *kept.recording);
  kept_.clear();
  room_->leave(*this);
}

Result<bool> Replays::run(std::span<void* const> addresses, CUstream stream, double submit_ms, bool wait) {
  using State = Recording::State;
  if (refused_) return false;
  auto same = [&](const auto& k) {
    const auto& its = k.recording->addresses;
    return std::equal(its.begin(), its.end(), addresses.begin(), addresses.end());
  };
  const auto it = std::find_if(kept_.begin(), kept_.end(), same);
  if (it == kept_.end()) {
    Kept fresh{std::make_shared<Recording>(), nullptr};
    if (kept_.size() == kKept) {
      Recording& last = *kept_.back().recording;
      if (last.state == State::Waiting) return false;
      if (!recorder_->is_valid(last)) drop(*context_, last);
      fresh.recording->graph = std::exchange(last.graph, nullptr);
      fresh.room = std::move(kept_.back().room);
      kept_.pop_back();
    }
    fresh.recording->addresses.assign(addresses.begin(), addresses.end());
    kept_.insert(kept_.begin(), std::move(fresh));
    return false;
  }
  std::rotate(kept_.begin(), it, it + 1);
  Recording& kept = *kept_.front().recording;
  if (kept.state == State::Ready && !recorder_->is_valid(kept)) {
    drop(*context_, kept);
    kept.state = State::New;
    kept.captures = 0;
  }
  if (kept.state == State::New && (wait || submit_ms >= recorder_->mean_ms())) {
    auto& room = kept_.front().room;
    if (!room) room = room_->take(*this, steps_);
    if (!room) return false;
    recorder_->add(kept_.front().recording, this, put_, wait);
    if (wait) recorder_->wait(this);
  }
  switch (kept.state.load()) {
  case State::New:
  case State::Waiting: return false;
  case State::Refused: return give_up(std::move(*kept.why));
  case State::Ready: break;
  }
  room_->used(*this);
  if (auto result = context_->driver().cuGraphLaunch(kept.graph, stream); result != CUDA_SUCCESS)
    return give_up(context_->error(result, "cuGraphLaunch", "starting the steps of a run"));
  return true;
}

Result<bool> Replays::give_up(Diagnostic why) {
  TESSERA_TRY(context_->usable());
  drop_all();
  refused_ = true;
  TESSERA_LOGF(LogChannel::Perf, "steps are launched singly: " + why.message);
  return false;
}

} // namespace tessera::cuda
