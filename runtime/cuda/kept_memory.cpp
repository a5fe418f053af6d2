#include "runtime/cuda/kept_memory.h"
#include <algorithm>

namespace tessera::cuda {

namespace {
CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
} // namespace

Result<std::byte*> CudaKeptMemory::allocate(int64_t bytes) {
  const int64_t room = rounded_bytes(std::max<int64_t>(bytes, 1));
  TESSERA_TRY(account_->take(MemoryAccount::Where::Device, room, "states"));
  DeviceBlock block;
  if (auto reserved = block.reserve(*context_, room, stream_(), "states"); !reserved.ok()) {
    account_->give(MemoryAccount::Where::Device, room);
    return std::move(reserved).take_error();
  }
  blocks_.push_back({std::move(block), room});
  return blocks_.back().memory.data();
}

Status CudaKeptMemory::write(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes == 0) return {};
  constexpr const char* kDoing = "copying a state to the GPU";
  TESSERA_TRY(pending_.wait());
  TESSERA_TRY(staging_.upload(address(to), from, static_cast<size_t>(bytes), stream_(), kDoing));
  return arrived(kDoing);
}

Status CudaKeptMemory::read(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes == 0) return {};
  constexpr const char* kDoing = "copying a state to the host";
  TESSERA_TRY(pending_.wait());
  TESSERA_TRY(staging_.download(to, address(from), static_cast<size_t>(bytes), stream_(), kDoing));
  return arrived(kDoing);
}

Status CudaKeptMemory::arrived(const char* doing) {
  TESSERA_TRY(staging_.wait());
  TESSERA_CUDA_TRY(*context_, doing, cuStreamSynchronize, stream_());
  return {};
}

Status CudaKeptMemory::change(std::span<const StateValue> states, CUstream stream) {
  for (const StateValue& s : states)
    if (s.value.bytes() > 0)
      TESSERA_CUDA_TRY(*context_, "changing a state", cuMemcpyDtoDAsync, address(s.value.data()),
                       address(s.next.data()), s.value.bytes(), stream);
  return {};
}

void CudaKeptMemory::release(CUstream stream) {
  for (Block& b : blocks_) {
    b.memory.release(*context_, stream);
    account_->give(MemoryAccount::Where::Device, b.bytes);
  }
  blocks_.clear();
}

} // namespace tessera::cuda
