// Weights on a GPU: uploaded once per GPU, when a run first needs them, and shared by all executors and executables
// that show the same host memory (the variants of a model do).
#pragma once
#include "runtime/cuda/memory.h"
#include "runtime/memory_account.h"
#include "runtime/variant.h"

namespace tessera::cuda {

class DeviceConstants {
public:
  // Uploads the constants that the variant's steps on the GPU read, but for those that are there already; they have
  // arrived when it returns. Memory comes in one block, constants are aligned to 256 bytes. Mapped files are read a
  // piece at a time, and the pages given back. The context is current. Errors: OutOfMemory (the account's limit, too), DeviceError.
  [[nodiscard]] static Result<std::unique_ptr<DeviceConstants>> upload(const std::shared_ptr<Context>& context,
                                                                       const std::shared_ptr<MemoryAccount>& account,
                                                                       const Variant& variant, Staging& staging,
                                                                       CUstream stream);
  // By BufferId: where the constant is; null for what is no constant or not read on the GPU.
  [[nodiscard]] const std::vector<void*>& addresses() const { return addresses_; }
  [[nodiscard]] int64_t uploaded_bytes() const { return uploaded_bytes_; } // by this call

  struct Placed;

private:
  std::vector<void*> addresses_;
  std::vector<std::shared_ptr<const Placed>> kept_; // alive as long as this
  int64_t uploaded_bytes_ = 0;
};

} // namespace tessera::cuda
