// A GPU as this process uses it: its primary context (the one that the CUDA runtime and PyTorch use), what it can do,
// its memory, and what executors and libraries share on it. Thread-safe.
#pragma once
#include "base/fork.h"
#include "runtime/cuda/driver.h"
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace tessera::cuda {

struct DeviceProperties {
  std::string name; // "NVIDIA H200"
  int ordinal = 0;
  int major = 0, minor = 0; // compute capability
  int multiprocessors = 0;
  int max_threads_per_block = 0;
  int64_t memory_bytes = 0, l2_bytes = 0;
  double memory_peak_bytes_per_us = 0;        // memory clock times bus width; 0 where the driver does not report it
  int64_t shared_bytes_per_block = 0;         // what a kernel may request
  int64_t default_shared_bytes_per_block = 0; // and without asking
  bool cooperative_launch = false;            // of grids whose blocks wait for each other
  bool memory_pools = false;                  // stream-ordered allocation
  [[nodiscard]] std::string arch() const { return "sm_" + std::to_string(major * 10 + minor); }
};

class Context : public std::enable_shared_from_this<Context> {
public:
  // The context of GPU `ordinal`, kept for the process once it has been opened. Errors: those of Driver::load; Usage
  // for a GPU that is not there; DeviceError.
  [[nodiscard]] static Result<std::shared_ptr<Context>> open(int ordinal = 0);
  // One of a given driver, shared with nobody. The driver is initialised already.
  [[nodiscard]] static Result<std::shared_ptr<Context>> create(std::shared_ptr<const Driver> driver, int ordinal = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] const DeviceProperties& properties() const { return properties_; }
  [[nodiscard]] CUcontext handle() const { return handle_; }

  // Makes the context current on this thread for a scope, and the thread's former one again at its end.
  //
  // Meanwhile no call of this thread is forbidden because a stream is captured, on this thread or another, and none ends
  // a capture: allocating, loading code and waiting for streams are all right where they have nothing to do with what is
  // captured (cuThreadExchangeStreamCaptureMode). What is put on a stream that is captured is checked by its caller.
  class Current {
  public:
    explicit Current(Context& context);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    [[nodiscard]] Status status() const;

  private:
    Context& context_;
    CUresult result_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED; // the thread's former one
  };

  // Driver::error(); and where `result` is one that the context does not survive, the context is lost from then on.
  [[nodiscard]] Diagnostic error(CUresult result, const char* function, const std::string& doing = {},
                                 std::source_location at = std::source_location::current());
  // Error DeviceError once the context is lost, with what broke it: nothing on this GPU works in this process any more.
  [[nodiscard]] Status usable() const;

  // Device memory, aligned to 256 bytes; to be used on `stream`, or on others after an event. Error OutOfMemory names
  // `what`, the bytes requested, those free and those allocated here; everything else stays usable. Before it gives
  // up it waits for `stream` and gives unused memory of the pool back. The context is current.
  [[nodiscard]] Result<CUdeviceptr> allocate(int64_t bytes, CUstream stream, const std::string& what);
  // After what was put on `stream` before.
  void release(CUdeviceptr address, int64_t bytes, CUstream stream);
  // Waits for `stream` and gives unused memory of the pool back to the system.
  [[nodiscard]] Status trim(CUstream stream);
  [[nodiscard]] int64_t held_bytes() const { return held_.load(std::memory_order_relaxed); }

  // Device memory that no stream orders, for what is used on any: `bytes`, aligned to 256. Otherwise as allocate().
  [[nodiscard]] Result<CUdeviceptr> allocate_unordered(int64_t bytes, const std::string& what);
  // Once nothing uses it.
  void release_unordered(CUdeviceptr address, int64_t bytes);

  // The capture of a stream: the graph, which lives until the capture ends, and a number that no other capture of the
  // process has.
  struct Capture {
    uint64_t id = 0;
    CUgraph graph = nullptr;
  };
  // Nothing where the stream is not captured. Errors: DeviceError; Usage where the stream cannot be used, since the
  // capture has failed, or it is the default stream and one that waits for it is captured.
  [[nodiscard]] Result<std::optional<Capture>> capture_of(CUstream stream);

  // Launches a grid that is larger than the GPU and whose blocks wait for neighbours (runtime.md, "Cooperative
  // blocks"): one such launch runs at a time over all streams. Blocks of several could fill the GPU, all of them
  // waiting for some that have not begun. `launch` puts it on `stream`, behind the one before. The context is current.
  [[nodiscard]] Status launch_alone(CUstream stream, const std::function<Status()>& launch);

  // An object that a library or a cache keeps with the context, such as a handle of cuBLASLt: made by `make` (with the
  // context current) at the first request of the name, destroyed before the context is let go.
  using MakeAttachment = std::function<Result<std::shared_ptr<void>>(Context&)>;
  [[nodiscard]] Result<std::shared_ptr<void>> attachment(const std::string& name, const MakeAttachment& make);
  // The same for a T that is made of the context alone.
  template <class T>
  [[nodiscard]] Result<std::shared_ptr<T>> attachment_of(const std::string& name) {
    TESSERA_ASSIGN(auto attached, attachment(name, [](Context& c) -> Result<std::shared_ptr<void>> {
                     return std::shared_ptr<void>(std::make_shared<T>(c));
                   }));
    return std::static_pointer_cast<T>(attached);
  }

private:
  Context() = default;
  [[nodiscard]] Status start(int ordinal);
  [[nodiscard]] Diagnostic out_of_memory(int64_t bytes, const std::string& what);

  std::shared_ptr<const Driver> driver_;
  DeviceProperties properties_;
  CUdevice device_ = 0;
  CUcontext handle_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  std::atomic<int64_t> held_{0};
  std::mutex alone_; // of these three
  CUevent alone_done_ = nullptr;
  unsigned long long alone_on_ = 0; // id of the stream
  const OfProcess process_;
  mutable std::mutex mutex_; // of what follows
  std::map<std::string, std::shared_ptr<void>> attachments_;
  std::unique_ptr<Diagnostic> lost_;
};

} // namespace tessera::cuda
