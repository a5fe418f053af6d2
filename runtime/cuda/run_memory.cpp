#include "runtime/cuda/run_memory.h"

namespace tessera::cuda {
namespace {
constexpr int64_t kWordBytes = sizeof(int32_t); // of counters and mailboxes
}

void RunMemory::add_segments(size_t count) {
  while (arenas_.size() < count) {
    arenas_.emplace_back();
    outputs_.emplace_back();
  }
}

void RunMemory::release(CUstream stream) {
  auto one = [&](DeviceBlock& block) {
    account_->give(MemoryAccount::Where::Device, block.bytes());
    block.release(*context_, stream);
  };
  for (auto* blocks : {&arenas_, &outputs_})
    for (auto& block : *blocks) one(block);
  for (auto* block : {&scratch_, &inputs_, &counters_, &mailboxes_}) one(*block);
  kept_resting_ = resting_ = {};
  scratch_at_ = nullptr;
}

void RunMemory::begin(CallMemory* own, bool captured) {
  own_ = own;
  captured_ = captured;
  resting_ = kept_resting_;
}

// A block that cannot grow keeps what it has where the account refuses, and is empty where the GPU does.
Status RunMemory::grow(DeviceBlock& block, int64_t bytes, CUstream stream, const char* what) {
  const int64_t had = block.bytes();
  bytes = DeviceBlock::room_for(bytes);
  if (bytes <= had) return {};
  TESSERA_TRY(account_->take(MemoryAccount::Where::Device, bytes - had, what));
  Status grown = block.reserve(*context_, bytes, stream, what);
  if (!grown.ok()) account_->give(MemoryAccount::Where::Device, bytes - block.bytes());
  return grown;
}
Result<std::byte*> RunMemory::reserve(DeviceBlock& block, int64_t bytes, CUstream stream, const char* what) {
  TESSERA_TRY(grow(block, bytes, stream, what));
  return block.data();
}
Result<std::byte*> RunMemory::outputs(int segment, int64_t bytes, CUstream stream) {
  if (own_) return bytes > 0 ? own_->take(bytes, "outputs") : nullptr;
  return reserve(outputs_[static_cast<size_t>(segment)], bytes, stream, "outputs");
}
Result<std::byte*> RunMemory::inputs(int64_t bytes, CUstream stream) {
  if (own_) return bytes > 0 ? own_->take(bytes, "inputs") : nullptr;
  return reserve(inputs_, bytes, stream, "inputs");
}

Result<std::byte*> RunMemory::enter(int segment, int64_t arena_bytes, int64_t scratch_bytes, const CudaPlan& plan,
                                    CUstream stream) {
  constexpr const char* kArena = "intermediate results";
  if (!own_) {
    TESSERA_ASSIGN(auto* arena, reserve(arenas_[static_cast<size_t>(segment)], arena_bytes, stream, kArena));
    TESSERA_TRY(grow(scratch_, scratch_bytes, stream, "the workspace of library calls"));
    scratch_at_ = scratch_.data();
    TESSERA_TRY(place_resting(plan, stream));
    return arena;
  }
  // One request for all: arena, scratch memory, counters and mailboxes.
  const int64_t scratch = rounded_bytes(arena_bytes), counters = scratch + rounded_bytes(scratch_bytes);
  const int64_t mailboxes = counters + (captured_ ? rounded_bytes(plan.counters * kWordBytes) : 0);
  const int64_t total = mailboxes + (captured_ ? rounded_bytes(plan.mailboxes * kWordBytes) : 0);
  std::byte* at = nullptr;
  if (total > 0) {
    TESSERA_ASSIGN(at, own_->take(total, kArena));
  }
  scratch_at_ = scratch_bytes > 0 ? at + scratch : nullptr;
  if (!captured_) {
    TESSERA_TRY(place_resting(plan, stream));
    return at;
  }
  resting_ = {reinterpret_cast<CUdeviceptr>(at + counters), reinterpret_cast<CUdeviceptr>(at + mailboxes)};
  if (total > counters)
    TESSERA_CUDA_TRY(*context_, "", cuMemsetD8Async, resting_.counters, 0, static_cast<size_t>(total - counters),
                     stream);
  return at;
}

Status RunMemory::place_resting(const CudaPlan& plan, CUstream stream) {
  TESSERA_TRY(rest(counters_, kept_resting_.counters, plan.counters, stream, "counters of grid barriers"));
  TESSERA_TRY(rest(mailboxes_, kept_resting_.mailboxes, plan.mailboxes, stream, "mailboxes of partial results"));
  resting_ = kept_resting_;
  return {};
}
Status RunMemory::rest(DeviceBlock& block, CUdeviceptr& where, int64_t words, CUstream stream, const char* what) {
  const int64_t bytes = words * kWordBytes;
  if (bytes == 0 || (where != 0 && bytes <= block.bytes())) return {};
  where = 0;
  TESSERA_TRY(grow(block, rounded_bytes(bytes), stream, what));
  const auto address = reinterpret_cast<CUdeviceptr>(block.data());
  TESSERA_CUDA_TRY(*context_, "", cuMemsetD8Async, address, 0, static_cast<size_t>(block.bytes()), stream);
  where = address;
  return {};
}

void RunMemory::append_addresses(std::vector<void*>& to) const {
  to.push_back(scratch_at_);
  for (CUdeviceptr resting : {resting_.counters, resting_.mailboxes}) to.push_back(reinterpret_cast<void*>(resting));
}
LaunchMemory RunMemory::kept(std::span<void* const> addresses, size_t buffers, const Reports& reports) {
  void* const* appended = addresses.data() + buffers;
  return {addresses.data(),
          static_cast<std::byte*>(appended[0]),
          {reinterpret_cast<CUdeviceptr>(appended[1]), reinterpret_cast<CUdeviceptr>(appended[2])},
          reports};
}

} // namespace tessera::cuda
