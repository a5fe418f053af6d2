#include "runtime/cuda/pinned_arrays.h"
#include <cstring>

namespace tessera::cuda {

Result<std::shared_ptr<PinnedArrays>> PinnedArrays::of(Context& context) {
  auto make = [](Context& c) -> Result<std::shared_ptr<void>> {
    return std::shared_ptr<void>(std::make_shared<PinnedArrays>(c.driver()));
  };
  TESSERA_ASSIGN(auto attached, context.attachment("pinned arrays", make));
  return std::static_pointer_cast<PinnedArrays>(attached);
}

PinnedArrays::~PinnedArrays() {
  for (const auto& [addresses, memory] : arrays_) (void)driver_.cuMemFreeHost(memory);
}

Result<const void*> PinnedArrays::find(Context& context, const std::vector<std::byte*>& addresses) {
  std::lock_guard lock(mutex_);
  if (auto it = arrays_.find(addresses); it != arrays_.end()) return static_cast<const void*>(it->second);
  const size_t bytes = addresses.size() * sizeof(std::byte*);
  if (bytes_ + bytes > kMaxBytes) return static_cast<const void*>(nullptr);
  auto& memory = arrays_[addresses];
  if (auto result = driver_.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE); result != CUDA_SUCCESS) {
    arrays_.erase(addresses);
    return context.error(result, "cuMemHostAlloc",
                         "setting aside " + std::to_string(bytes) + " bytes of pinned memory");
  }
  bytes_ += bytes;
  std::memcpy(memory, addresses.data(), bytes);
  return static_cast<const void*>(memory);
}

} // namespace tessera::cuda
