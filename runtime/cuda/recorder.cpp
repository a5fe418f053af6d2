#include "runtime/cuda/recorder.h"
#include "graph/support/guarded.h"
#include "graph/support/stopwatch.h"
#include <algorithm>

namespace tessera::cuda {

Result<std::shared_ptr<Recorder>> Recorder::of(Context& context) {
  auto make = [](Context& c) -> Result<std::shared_ptr<void>> {
    return std::shared_ptr<void>(std::make_shared<Recorder>(c));
  };
  TESSERA_ASSIGN(auto attached, context.attachment("recorder", make));
  return std::static_pointer_cast<Recorder>(attached);
}

Recorder::~Recorder() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Recorder::Job::is_of(const void* owner) const {
  return std::find(owners.begin(), owners.end(), owner) != owners.end();
}

void Recorder::add(std::shared_ptr<Recording> recording, const Owners& owners, Put put) {
  std::lock_guard lock(mutex_);
  if (jobs_.size() >= kMostWaiting) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  recording->state = Recording::State::Waiting;
  jobs_.push_back({std::move(recording), owners, std::move(put)});
  more_.notify_one();
}

void Recorder::wait(const void* owner) {
  std::unique_lock lock(mutex_);
  done_.wait(lock,
             [&] { return std::none_of(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.is_of(owner); }); });
}

void Recorder::forget(const void* owner) {
  std::unique_lock lock(mutex_);
  const auto waiting = jobs_.begin() + (busy_ ? 1 : 0);
  const auto kept = std::stable_partition(waiting, jobs_.end(), [&](const Job& j) { return !j.is_of(owner); });
  for (auto job = kept; job != jobs_.end(); ++job) job->recording->state = Recording::State::New;
  jobs_.erase(kept, jobs_.end());
  done_.notify_all();
  done_.wait(lock, [&] { return !busy_ || !jobs_.front().is_of(owner); });
}

void Recorder::work() {
  Context::Current current(context_);
  context_.keep_out_of_captures();
  CUstream stream = nullptr;
  if (!current.status().ok() ||
      context_.driver().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS)
    stream = nullptr;
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) break;
    busy_ = true;
    const Job& job = jobs_.front(); // stays in place: others are added behind it
    lock.unlock();
    record(job, stream);
    lock.lock();
    busy_ = false;
    jobs_.pop_front();
    done_.notify_all();
  }
  if (stream) context_.driver().cuStreamDestroy(stream);
}

void Recorder::record(const Job& job, CUstream stream) {
  const Stopwatch watch;
  Status recorded = guarded("recording the steps of a run", [&]() -> Status {
    if (!stream) return Diagnostic(ErrorCode::DeviceError, "there is no stream to record on");
    return capture(job, stream);
  });
  ++recorded_;
  mean_ms_ = mean_ms_ + (watch.ms() - mean_ms_) / static_cast<double>(recorded_);
  if (!recorded.ok()) job.recording->why = std::move(recorded).take_error();
  job.recording->state = recorded.ok() ? Recording::State::Ready : Recording::State::Refused;
}

Status Recorder::capture(const Job& job, CUstream stream) const {
  constexpr const char* kDoing = "recording the steps of a run";
  // Relaxed: other threads of the process, and libraries that load a kernel, do what they like meanwhile.
  TESSERA_CUDA_TRY(context_, kDoing, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  Status status = guarded(kDoing, [&] { return job.put(stream, job.recording->addresses); });
  CUgraph graph = nullptr;
  const auto ended = context_.driver().cuStreamEndCapture(stream, &graph); // whatever happened, the stream is as it was
  if (status.ok() && ended != CUDA_SUCCESS) status = context_.error(ended, "cuStreamEndCapture", kDoing);
  if (status.ok()) {
    const auto result = context_.driver().cuGraphInstantiateWithFlags(&job.recording->graph, graph, 0);
    if (result != CUDA_SUCCESS) {
      job.recording->graph = nullptr;
      status = context_.error(result, "cuGraphInstantiate", kDoing);
    }
  }
  if (graph) context_.driver().cuGraphDestroy(graph);
  return status;
}

} // namespace tessera::cuda
