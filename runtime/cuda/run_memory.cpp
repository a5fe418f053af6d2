#include "runtime/cuda/run_memory.h"

namespace tessera::cuda {

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
  for (auto* block : {&scratch_, &inputs_, &counters_, &boxes_}) one(*block);
  resting_ = {};
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
Result<std::byte*> RunMemory::arena(int segment, int64_t bytes, CUstream stream) {
  return reserve(arenas_[static_cast<size_t>(segment)], bytes, stream, "intermediate results");
}
Result<std::byte*> RunMemory::outputs(int segment, int64_t bytes, CUstream stream) {
  return reserve(outputs_[static_cast<size_t>(segment)], bytes, stream, "outputs");
}
Result<std::byte*> RunMemory::inputs(int64_t bytes, CUstream stream) {
  return reserve(inputs_, bytes, stream, "inputs");
}
Status RunMemory::reserve_scratch(int64_t bytes, CUstream stream) {
  return grow(scratch_, bytes, stream, "the workspace of library calls");
}

Status RunMemory::place_resting(const CudaPlan& plan, CUstream stream) {
  TESSERA_TRY(rest(counters_, resting_.counters, plan.counters, stream, "counters of grid barriers"));
  return rest(boxes_, resting_.boxes, plan.boxes, stream, "mailboxes of partial results");
}
Status RunMemory::rest(DeviceBlock& block, CUdeviceptr& where, int64_t words, CUstream stream, const char* what) {
  const auto bytes = words * static_cast<int64_t>(sizeof(int32_t));
  if (bytes == 0 || (where != 0 && bytes <= block.bytes())) return {};
  where = 0;
  TESSERA_TRY(grow(block, rounded_bytes(bytes), stream, what));
  const auto address = reinterpret_cast<CUdeviceptr>(block.data());
  TESSERA_CUDA_TRY(*context_, "", cuMemsetD8Async, address, 0, static_cast<size_t>(block.bytes()), stream);
  where = address;
  return {};
}

void RunMemory::append_addresses(std::vector<void*>& to) const {
  for (const DeviceBlock* block : {&scratch_, &counters_, &boxes_}) to.push_back(block->data());
}

} // namespace tessera::cuda
