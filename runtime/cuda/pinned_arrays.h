// Arrays of addresses in pinned host memory, which never change: a copy to the GPU that a CUDA graph holds reads them
// each time the graph runs, whatever was launched in between.
#pragma once
#include "runtime/cuda/context.h"
#include <span>
#include <vector>

namespace tessera::cuda {

class PinnedArrays {
public:
  static constexpr size_t kMaxBytes = 16 << 20; // of all arrays of a context

  // Those of the context; freed with it.
  [[nodiscard]] static Result<std::shared_ptr<PinnedArrays>> of(Context& context);
  explicit PinnedArrays(const Driver& driver) : driver_(driver) {}
  ~PinnedArrays();
  PinnedArrays(const PinnedArrays&) = delete;
  PinnedArrays& operator=(const PinnedArrays&) = delete;

  // The array of these addresses; equal ones share it. nullptr where kMaxBytes are taken. The context is current;
  // thread-safe. Errors: OutOfMemory, DeviceError.
  [[nodiscard]] Result<const void*> find(Context& context, const std::vector<std::byte*>& addresses);

private:
  const Driver& driver_;
  std::mutex mutex_;
  std::map<std::vector<std::byte*>, void*> arrays_;
  size_t bytes_ = 0;
};

} // namespace tessera::cuda
