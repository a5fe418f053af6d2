#include "runtime/cuda/stream.h"

namespace tessera::cuda {

Result<std::unique_ptr<Stream>> Stream::create(std::shared_ptr<Context> context, bool urgent) {
  constexpr int kMaxUrgent = -1000; // taken as the nearest that there is
  std::unique_ptr<Stream> stream(new Stream(std::move(context)));
  TESSERA_CUDA_TRY(*stream->context_, "", cuStreamCreateWithPriority, &stream->handle_, CU_STREAM_NON_BLOCKING,
                   urgent ? kMaxUrgent : 0);
  return stream;
}

Stream::~Stream() {
  if (!handle_) return;
  Context::Current current(*context_);
  context_->driver().cuStreamDestroy(handle_);
}

Result<std::unique_ptr<Event>> Event::create(std::shared_ptr<Context> context, bool timed) {
  std::unique_ptr<Event> event(new Event(std::move(context)));
  TESSERA_CUDA_TRY(*event->context_, "", cuEventCreate, &event->handle_,
                   timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  return event;
}

Event::~Event() {
  if (!handle_) return;
  Context::Current current(*context_);
  context_->driver().cuEventDestroy(handle_);
}

Status Event::record(CUstream stream) {
  TESSERA_CUDA_TRY(*context_, "", cuEventRecord, handle_, stream);
  return {};
}

Status Event::wait() {
  TESSERA_CUDA_TRY(*context_, "", cuEventSynchronize, handle_);
  return {};
}

Status Event::wait_on(CUstream stream) {
  TESSERA_CUDA_TRY(*context_, "", cuStreamWaitEvent, stream, handle_, CU_EVENT_WAIT_DEFAULT);
  return {};
}

Result<double> Event::ms_since(const Event& earlier) const {
  float ms = 0;
  TESSERA_CUDA_TRY(*context_, "", cuEventElapsedTime, &ms, earlier.handle_, handle_);
  return static_cast<double>(ms);
}

} // namespace tessera::cuda
