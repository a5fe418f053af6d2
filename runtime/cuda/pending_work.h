// Work that a call has left on a stream when it returned: later calls use the same memory and come after it.
#pragma once
#include "runtime/cuda/stream.h"

namespace tessera::cuda {

class PendingWork {
public:
  explicit PendingWork(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  [[nodiscard]] Status create(); // before all others
  [[nodiscard]] bool any() const { return pending_; }
  // All that is on the stream now may be in flight when the call returns.
  [[nodiscard]] Status leave(CUstream stream);
  // `stream` goes on behind it.
  [[nodiscard]] Status follow(CUstream stream);
  [[nodiscard]] Status wait();           // errors of its steps come out here
  void mark_done() { pending_ = false; } // its stream has been waited for

private:
  std::shared_ptr<Context> context_;
  std::unique_ptr<Event> done_; // recorded after it
  bool pending_ = false;
  unsigned long long stream_ = 0; // its stream's id: handles may be used again for another stream, ids are not
};

} // namespace tessera::cuda
