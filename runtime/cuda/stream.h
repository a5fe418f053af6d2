// Streams and events that end with their owner.
#pragma once
#include "runtime/cuda/context.h"

namespace tessera::cuda {

// A stream of its own that does not wait for the default stream. The context is current where these are made.
class Stream {
public:
  // `urgent`: its kernels go before those of other streams that have not been started yet. (No priority is below that
  // of an ordinary stream, the default one included.)
  [[nodiscard]] static Result<std::unique_ptr<Stream>> create(std::shared_ptr<Context> context, bool urgent = false);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] CUstream handle() const { return handle_; }

private:
  explicit Stream(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  std::shared_ptr<Context> context_;
  CUstream handle_ = nullptr;
};

class Event {
public:
  // `timed`: for elapsed(); without it recording is cheaper.
  [[nodiscard]] static Result<std::unique_ptr<Event>> create(std::shared_ptr<Context> context, bool timed = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] CUevent handle() const { return handle_; }
  [[nodiscard]] Status record(CUstream stream);
  // Until what was on the stream at record() is done. Errors of the steps before come out here.
  [[nodiscard]] Status wait();
  // `stream` waits, the host does not.
  [[nodiscard]] Status wait_on(CUstream stream);
  // Milliseconds between two timed events that have both passed.
  [[nodiscard]] Result<double> ms_since(const Event& earlier) const;

private:
  explicit Event(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  std::shared_ptr<Context> context_;
  CUevent handle_ = nullptr;
};

} // namespace tessera::cuda
