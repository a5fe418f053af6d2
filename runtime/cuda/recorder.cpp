#include "runtime/cuda/recorder.h"
#include "base/guarded.h"
#include "base/stopwatch.h"
#include <algorithm>

namespace tessera::cuda {

Result<std::shared_ptr<Recorder>> Recorder::of(Context& context) { return context.attachment_of<Recorder>("recorder"); }

Recorder::~Recorder() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  if (thread_.joinable()) thread_.join();
  Context::Current current(context_);
  for (const Job& job : jobs_) context_.driver().cuGraphDestroy(job.graph);
  if (stream_) context_.driver().cuStreamDestroy(stream_);
}

void Recorder::add(const std::shared_ptr<Recording>& recording, const void* owner, const Put& put, bool wait) {
  {
    std::lock_guard lock(mutex_);
    if (jobs_.size() >= kMaxWaiting && !wait) return;
  }
  std::unique_lock capturing(capturing_, std::defer_lock);
  if (wait)
    capturing.lock();
  else if (!capturing.try_lock())
    return;
  const Stopwatch watch;
  auto captured = capture(*recording, put);
  const double took = watch.ms();
  capturing.unlock();
  if (!captured.ok()) {
    if (recording->state == Recording::State::New) return;
    recording->why = std::move(captured).take_error();
    return;
  }
  std::lock_guard lock(mutex_);
  const Status added = guarded("recording the steps of a run", [&]() -> Status {
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    jobs_.push_back({recording, owner, *captured, took});
    return {};
  });
  recording->state = added.ok() ? Recording::State::Waiting : Recording::State::New;
  if (!added.ok()) context_.driver().cuGraphDestroy(*captured);
  more_.notify_one();
}

// After an error the state is New where it is to be tried again, else Refused.
Result<CUgraph> Recorder::capture(Recording& recording, const Put& put) {
  constexpr const char* kDoing = "recording the steps of a run";
  const Driver& driver = context_.driver();
  recording.state = Recording::State::Refused;
  ++recording.captures;
  if (!stream_) TESSERA_CUDA_TRY(context_, kDoing, cuStreamCreateWithPriority, &stream_, CU_STREAM_NON_BLOCKING, 0);
  // Relaxed: this and other threads, and libraries that load a kernel, do what they like meanwhile.
  TESSERA_CUDA_TRY(context_, kDoing, cuStreamBeginCapture, stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
  Status status = guarded(kDoing, [&] { return put(stream_, recording.addresses); });
  CUgraph graph = nullptr;
  const auto ended = driver.cuStreamEndCapture(stream_, &graph); // whatever happened, the stream is as it was
  if (ended == CUDA_SUCCESS && status.ok()) {
    recording.allocations.clear();
    status = guarded(kDoing, [&] { return find_allocations(graph, recording); });
    if (status.ok()) return graph;
  }
  if (graph) driver.cuGraphDestroy(graph);
  if (ended == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && recording.captures < kMaxCaptures)
    recording.state = Recording::State::New;
  if (!status.ok()) return std::move(status).take_error();
  return context_.error(ended, "cuStreamEndCapture", kDoing);
}

Status Recorder::find_allocations(CUgraph graph, Recording& recording) const {
  constexpr const char* kDoing = "looking for memory that a graph copies";
  size_t count = 0;
  TESSERA_CUDA_TRY(context_, kDoing, cuGraphGetNodes, graph, nullptr, &count);
  std::vector<CUgraphNode> nodes(count);
  if (count > 0) TESSERA_CUDA_TRY(context_, kDoing, cuGraphGetNodes, graph, nodes.data(), &count);
  auto add = [&](CUdeviceptr address) -> Status {
    auto known = [&](const Recording::Allocation& a) { return a.address == address; };
    if (std::any_of(recording.allocations.begin(), recording.allocations.end(), known)) return {};
    Recording::Allocation found{address};
    TESSERA_CUDA_TRY(context_, kDoing, cuPointerGetAttribute, &found.number, CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
    recording.allocations.push_back(found);
    return {};
  };
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    TESSERA_CUDA_TRY(context_, kDoing, cuGraphNodeGetType, node, &type);
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph inner = nullptr;
      TESSERA_CUDA_TRY(context_, kDoing, cuGraphChildGraphNodeGetGraph, node, &inner);
      TESSERA_TRY(find_allocations(inner, recording));
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
      CUDA_MEMSET_NODE_PARAMS fill{};
      TESSERA_CUDA_TRY(context_, kDoing, cuGraphMemsetNodeGetParams, node, &fill);
      TESSERA_TRY(add(fill.dst));
    } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
      CUDA_MEMCPY3D copy{};
      TESSERA_CUDA_TRY(context_, kDoing, cuGraphMemcpyNodeGetParams, node, &copy);
      auto on_device = [](CUmemorytype t) { return t == CU_MEMORYTYPE_DEVICE || t == CU_MEMORYTYPE_UNIFIED; };
      if (on_device(copy.srcMemoryType)) TESSERA_TRY(add(copy.srcDevice));
      if (on_device(copy.dstMemoryType)) TESSERA_TRY(add(copy.dstDevice));
    }
  }
  return {};
}

bool Recorder::is_valid(const Recording& recording) const {
  return std::all_of(recording.allocations.begin(), recording.allocations.end(), [&](const Recording::Allocation& a) {
    uint64_t number = 0;
    const auto result = context_.driver().cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, a.address);
    return result == CUDA_SUCCESS && number == a.number;
  });
}

void Recorder::wait(const void* owner) {
  std::unique_lock lock(mutex_);
  done_.wait(lock,
             [&] { return std::none_of(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.owner == owner; }); });
}

void Recorder::forget(const void* owner) {
  std::unique_lock lock(mutex_);
  const auto waiting = jobs_.begin() + (busy_ ? 1 : 0);
  const auto kept = std::stable_partition(waiting, jobs_.end(), [&](const Job& j) { return j.owner != owner; });
  for (auto job = kept; job != jobs_.end(); ++job) {
    context_.driver().cuGraphDestroy(job->graph);
    job->recording->state = Recording::State::New;
  }
  jobs_.erase(kept, jobs_.end());
  done_.notify_all();
  done_.wait(lock, [&] { return !busy_ || jobs_.front().owner != owner; });
}

void Recorder::work() {
  Context::Current current(context_);
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) break;
    busy_ = true;
    const Job& job = jobs_.front(); // stays in place: others are added behind it
    lock.unlock();
    make(job);
    lock.lock();
    busy_ = false;
    jobs_.pop_front();
    done_.notify_all();
  }
}

void Recorder::make(const Job& job) {
  const Stopwatch watch;
  Recording& recording = *job.recording;
  Status made = guarded("recording the steps of a run", [&] { return instantiate(recording.graph, job.graph); });
  context_.driver().cuGraphDestroy(job.graph);
  ++recorded_;
  mean_ms_ = mean_ms_ + (job.capture_ms + watch.ms() - mean_ms_) / static_cast<double>(recorded_);
  if (!made.ok() && !is_valid(recording)) { // freed since it was captured
    recording.state = Recording::State::New;
    return;
  }
  if (!made.ok()) recording.why = std::move(made).take_error();
  recording.state = made.ok() ? Recording::State::Ready : Recording::State::Refused;
}

Status Recorder::instantiate(CUgraphExec& graph, CUgraph of) const {
  const Driver& driver = context_.driver();
  if (graph) { // launches of it that are in flight are not changed
    CUgraphExecUpdateResultInfo what{};
    if (driver.cuGraphExecUpdate(graph, of, &what) == CUDA_SUCCESS) return {};
    driver.cuGraphExecDestroy(std::exchange(graph, nullptr));
  }
  const auto result = driver.cuGraphInstantiateWithFlags(&graph, of, 0);
  if (result == CUDA_SUCCESS) return {};
  graph = nullptr;
  return context_.error(result, "cuGraphInstantiate", "recording the steps of a run");
}

} // namespace tessera::cuda
