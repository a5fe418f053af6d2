#include "runtime/cuda/pending_work.h"

namespace tessera::cuda {

Status PendingWork::create() {
  TESSERA_ASSIGN(done_, Event::create(context_));
  return {};
}

Status PendingWork::leave(CUstream stream) {
  TESSERA_CUDA_TRY(*context_, "", cuStreamGetId, stream, &stream_);
  TESSERA_TRY(done_->record(stream));
  pending_ = true;
  return {};
}

// On the same stream it goes on behind it anyway.
Status PendingWork::follow(CUstream stream) {
  if (!pending_) return {};
  unsigned long long id = 0;
  TESSERA_CUDA_TRY(*context_, "", cuStreamGetId, stream, &id);
  return id == stream_ ? Status() : done_->wait_on(stream);
}

Status PendingWork::wait() {
  if (!pending_) return {};
  TESSERA_TRY(done_->wait());
  pending_ = false;
  return {};
}

} // namespace tessera::cuda
