#include "runtime/cuda/replay.h"
#include "graph/support/log.h"
#include <algorithm>

namespace tessera::cuda {

Replays::~Replays() {
  Context::Current current(*context_);
  for (auto& kept : kept_) drop(kept);
}

// A graph that still runs is freed when it has.
void Replays::drop(Kept& kept) {
  if (kept.graph) context_->driver().cuGraphExecDestroy(std::exchange(kept.graph, nullptr));
}

Result<bool> Replays::run(std::span<void* const> addresses, CUstream stream, CUstream capture_on, const Put& put) {
  if (refused_) return false;
  auto same = [&](const Kept& k) {
    return std::equal(k.addresses.begin(), k.addresses.end(), addresses.begin(), addresses.end());
  };
  auto it = std::find_if(kept_.begin(), kept_.end(), same);
  if (it == kept_.end()) {
    if (kept_.size() == kKept) {
      drop(kept_.back());
      kept_.pop_back();
    }
    kept_.insert(kept_.begin(), Kept{{addresses.begin(), addresses.end()}});
    return false;
  }
  std::rotate(kept_.begin(), it, it + 1);
  Kept& kept = kept_.front();
  if (!kept.graph)
    if (auto s = capture(kept, capture_on, put); !s.ok()) return give_up(std::move(s).take_error());
  if (auto result = context_->driver().cuGraphLaunch(kept.graph, stream); result != CUDA_SUCCESS)
    return give_up(context_->error(result, "cuGraphLaunch", "starting the steps of a run"));
  return true;
}

Status Replays::capture(Kept& kept, CUstream on, const Put& put) {
  // Relaxed: other threads of the process, and libraries that load a kernel, do what they like meanwhile.
  TESSERA_CUDA_TRY(*context_, "capturing the steps of a run", cuStreamBeginCapture, on, CU_STREAM_CAPTURE_MODE_RELAXED);
  Status status = put(on);
  CUgraph graph = nullptr;
  auto ended = context_->driver().cuStreamEndCapture(on, &graph); // whatever happened, the stream is as it was
  if (status.ok() && ended != CUDA_SUCCESS)
    status = context_->error(ended, "cuStreamEndCapture", "capturing the steps of a run");
  if (status.ok()) {
    auto result = context_->driver().cuGraphInstantiateWithFlags(&kept.graph, graph, 0);
    if (result != CUDA_SUCCESS) {
      kept.graph = nullptr;
      status = context_->error(result, "cuGraphInstantiate", "capturing the steps of a run");
    }
  }
  if (graph) context_->driver().cuGraphDestroy(graph);
  return status;
}

Result<bool> Replays::give_up(Diagnostic why) {
  TESSERA_TRY(context_->usable());
  for (auto& kept : kept_) drop(kept);
  kept_.clear();
  refused_ = true;
  TESSERA_LOGF(LogChannel::Perf, "steps are launched singly: " + why.message);
  return false;
}

} // namespace tessera::cuda
