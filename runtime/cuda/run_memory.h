// The device memory of an executor's runs: blocks that are kept from call to call and grow, or memory of a call's own.
#pragma once
#include "runtime/cuda/captured_calls.h"
#include "runtime/cuda/plan.h"
#include "runtime/memory_account.h"

namespace tessera::cuda {

class RunMemory {
public:
  RunMemory(std::shared_ptr<Context> context, std::shared_ptr<MemoryAccount> account)
      : context_(std::move(context)), account_(std::move(account)) {}
  void add_segments(size_t count); // so that there are at least as many
  void release(CUstream stream);

  // Begins a call. `own`: the source of its memory, null for the blocks that are kept. `captured`: it is recorded into
  // a graph of the caller.
  void begin(CallMemory* own, bool captured);
  // At least so many bytes, ordered on `stream`; what they held may be lost. Error OutOfMemory, the account's too.
  [[nodiscard]] Result<std::byte*> outputs(int segment, int64_t bytes, CUstream stream);
  [[nodiscard]] Result<std::byte*> inputs(int64_t bytes, CUstream stream);
  // Likewise the arena of a segment, of so many bytes, which is returned, and scratch memory of its steps.
  //
  // With them counters and mailboxes for the plan, cleared when new. Every launch leaves them at rest, and one that did not
  // happen has not touched them, so that nothing has to be done between launches, nor after a call that was given up.
  // Those of a captured call are the graph's, and cleared in it.
  [[nodiscard]] Result<std::byte*> enter(int segment, int64_t arena_bytes, int64_t scratch_bytes, const CudaPlan& plan,
                                         CUstream stream);
  // The memory of the present call's launches; `buffers` by BufferId.
  [[nodiscard]] LaunchMemory of_launches(void* const* buffers, const Reports& reports) const {
    return {buffers, scratch_at_, resting_, reports};
  }

  // Appends to the addresses of buffers what a replay of launches depends on.
  void append_addresses(std::vector<void*>& to) const;
  // The memory that such addresses name, of so many buffers and what was appended.
  [[nodiscard]] static LaunchMemory kept(std::span<void* const> addresses, size_t buffers, const Reports& reports);

private:
  [[nodiscard]] Status grow(DeviceBlock& block, int64_t bytes, CUstream stream, const char* what);
  [[nodiscard]] Result<std::byte*> reserve(DeviceBlock& block, int64_t bytes, CUstream stream, const char* what);
  [[nodiscard]] Status place_resting(const CudaPlan& plan, CUstream stream);
  [[nodiscard]] Status rest(DeviceBlock& block, CUdeviceptr& where, int64_t words, CUstream stream, const char* what);

  std::shared_ptr<Context> context_;
  std::shared_ptr<MemoryAccount> account_;
  std::vector<DeviceBlock> arenas_, outputs_; // per segment
  DeviceBlock scratch_, inputs_, counters_, mailboxes_;
  RestingMemory kept_resting_; // of counters_ and mailboxes_ once they are clear
  // The current call:
  CallMemory* own_ = nullptr;
  bool captured_ = false;
  std::byte* scratch_at_ = nullptr;
  RestingMemory resting_;
};

} // namespace tessera::cuda
