// The GPU's services for control steps: memory in the order of the run's stream, and copies on it.
#pragma once
#include "runtime/cuda/captured_calls.h"
#include "runtime/device.h"
#include "runtime/memory_account.h"

namespace tessera::cuda {

class CudaInnerRuns final : public InnerRuns {
public:
  // `stream`: of the current run. `arrive`: until the stream has got here; errors of what was on it.
  CudaInnerRuns(std::shared_ptr<Context> context, std::shared_ptr<MemoryAccount> account, Staging& staging,
                std::function<CUstream()> stream, std::function<Status(const std::string& doing)> arrive)
      : context_(std::move(context)), account_(std::move(account)), staging_(staging), stream_(std::move(stream)),
        arrive_(std::move(arrive)) {}
  ~CudaInnerRuns() override = default;
  CudaInnerRuns(const CudaInnerRuns&) = delete;
  CudaInnerRuns& operator=(const CudaInnerRuns&) = delete;

  [[nodiscard]] ExecutorOptions options(ExecutorOptions outer) const override;
  [[nodiscard]] void* stream() const override { return stream_(); }
  [[nodiscard]] Result<std::shared_ptr<std::byte>> allocate(int64_t bytes) override;
  [[nodiscard]] Status move(void* to, const void* from, int64_t bytes) override;
  [[nodiscard]] Status read(void* to, const void* from, int64_t bytes) override;
  [[nodiscard]] Status write(void* to, const void* from, int64_t bytes) override;
  // Begins a run. `own`: the source of memory in a run that is captured, in which nothing is copied from the host; else
  // null.
  void begin(CallMemory* own) { own_ = own; }
  // Gives memory back whose owners are gone; what used it comes before on `stream`.
  void release(CUstream stream);

private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<MemoryAccount> account_;
  Staging& staging_;
  std::function<CUstream()> stream_;
  std::function<Status(const std::string& doing)> arrive_;
  CallMemory* own_ = nullptr;
  std::vector<DeviceBlock> retired_;
};

} // namespace tessera::cuda
