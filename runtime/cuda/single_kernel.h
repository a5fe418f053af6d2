// A kernel by itself, without an executable's steps: its code on a GPU, launched on streams of the caller's.
#pragma once
#include "runtime/cuda/captured_calls.h"
#include "runtime/cuda/code_object.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/module.h"
#include "runtime/grid.h"

namespace tessera::cuda {

// Work on several streams, which somebody may have to wait for.
class StreamsInUse {
public:
  explicit StreamsInUse(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  // All that is on the stream now. Errors: DeviceError. The context is current, as for wait().
  [[nodiscard]] Status note(CUstream stream);
  [[nodiscard]] Status wait();

private:
  static constexpr size_t kMaxStreams = 16; // that are distinguished
  std::shared_ptr<Context> context_;
  std::map<unsigned long long, std::unique_ptr<Event>> ends_; // by the stream's id
};

class SingleKernel {
public:
  // `reports`: the kernel reports bad indices. `cooperative`: its blocks wait for each other. Errors: those of
  // LoadedExecutable.
  [[nodiscard]] static Result<std::unique_ptr<SingleKernel>>
  load(std::shared_ptr<Context> context, const CodeObject& object, bool reports, bool cooperative);
  ~SingleKernel(); // waits for launches that are not captured; graphs hold what they need
  SingleKernel(const SingleKernel&) = delete;
  SingleKernel& operator=(const SingleKernel&) = delete;

  // Puts a launch on the stream, which may be captured. `arguments`: a word of each parameter, in their order. `maps`:
  // those of the object at these arguments; `buffer` is the index of an argument. Any thread. Errors: DeviceError, those
  // of Context::capture_of().
  [[nodiscard]] Status launch(const Grid& grid, std::span<const uint64_t> arguments,
                              std::span<const TensorMapOf<int64_t>> maps, CUstream stream);
  // A bad index of an earlier launch, which it then forgets. Errors: DeviceError.
  [[nodiscard]] Result<std::optional<IndexReport>> take_report();

private:
  SingleKernel(std::shared_ptr<Context> context, bool cooperative)
      : context_(std::move(context)), cooperative_(cooperative), in_use_(context_) {}
  [[nodiscard]] Status make_report();
  // Encodes the maps, as far as they are not those of the launch before.
  [[nodiscard]] Status encode(std::span<const uint64_t> arguments, std::span<const TensorMapOf<int64_t>> maps);

  std::shared_ptr<Context> context_;
  const bool cooperative_;
  std::shared_ptr<LoadedExecutable> code_;
  KernelLaunch form_; // symbol, threads and shared memory
  CUfunction function_ = nullptr;
  std::shared_ptr<IndexReport> report_; // in host memory that the GPU writes; null: it reports none
  CUdeviceptr report_address_ = 0;
  std::mutex mutex_; // of what follows
  StreamsInUse in_use_;
  std::shared_ptr<MemoryAccount> account_ = std::make_shared<MemoryAccount>(0);
  std::vector<EncodedMap> maps_;
  std::vector<void*> parameters_;
};

} // namespace tessera::cuda
