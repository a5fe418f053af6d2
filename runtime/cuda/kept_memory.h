// Device memory of values that stay from run to run: the states of a model.
#pragma once
#include "runtime/cuda/memory.h"
#include "runtime/cuda/pending_work.h"
#include "runtime/device.h"
#include "runtime/memory_account.h"

namespace tessera::cuda {

class CudaKeptMemory final : public KeptMemory {
public:
  // `stream`: the executor's own, which copies to and from the host go through.
  CudaKeptMemory(std::shared_ptr<Context> context, std::shared_ptr<MemoryAccount> account, Staging& staging,
                 PendingWork& pending, std::function<CUstream()> stream)
      : context_(std::move(context)), account_(std::move(account)), staging_(staging), pending_(pending),
        stream_(std::move(stream)) {}
  CudaKeptMemory(const CudaKeptMemory&) = delete;
  CudaKeptMemory& operator=(const CudaKeptMemory&) = delete;
  ~CudaKeptMemory() override = default;

  [[nodiscard]] Result<std::byte*> allocate(int64_t bytes) override;
  [[nodiscard]] Status write(std::byte* to, const std::byte* from, int64_t bytes) override;
  [[nodiscard]] Status read(std::byte* to, const std::byte* from, int64_t bytes) override;
  // States take their new values in the memory that they have, in the order of `stream`: graphs, the caller's too, read
  // them where they lie.
  [[nodiscard]] Status change(std::span<const StateValue> states, CUstream stream);
  void release(CUstream stream); // when nothing uses it any more

private:
  [[nodiscard]] Status arrived(const char* doing);
  struct Block {
    DeviceBlock memory;
    int64_t bytes; // as they are counted
  };
  std::shared_ptr<Context> context_;
  std::shared_ptr<MemoryAccount> account_;
  Staging& staging_;
  PendingWork& pending_;
  std::function<CUstream()> stream_;
  std::vector<Block> blocks_;
};

} // namespace tessera::cuda
