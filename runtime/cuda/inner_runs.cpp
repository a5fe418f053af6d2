#include "runtime/cuda/inner_runs.h"

namespace tessera::cuda {

namespace {
CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
} // namespace

ExecutorOptions CudaInnerRuns::options(ExecutorOptions outer) const {
  outer.gpu_context = context_;
  return outer;
}

Result<std::shared_ptr<std::byte>> CudaInnerRuns::allocate(int64_t bytes) {
  constexpr const char* kWhat = "values of control flow";
  if (own_) {
    TESSERA_ASSIGN(std::byte * at, own_->take(bytes, kWhat));
    return std::shared_ptr<std::byte>(at, [](std::byte*) {}); // it is the call's
  }
  auto block = std::make_unique<DeviceBlock>();
  const int64_t room = DeviceBlock::room_for(rounded_bytes(bytes));
  TESSERA_TRY(account_->take(MemoryAccount::Where::Device, room, kWhat));
  if (auto reserved = block->reserve(*context_, room, stream_(), kWhat); !reserved.ok()) {
    account_->give(MemoryAccount::Where::Device, room);
    return std::move(reserved).take_error();
  }
  std::byte* data = block->data();
  // The owner may go while the GPU still works on the memory.
  return std::shared_ptr<std::byte>(data, [this, owned = block.release()](std::byte*) {
    retired_.push_back(std::move(*owned));
    delete owned;
  });
}

Status CudaInnerRuns::move(void* to, const void* from, int64_t bytes) {
  if (bytes > 0)
    TESSERA_CUDA_TRY(*context_, "moving a value of control flow", cuMemcpyDtoDAsync, address(to), address(from),
                     static_cast<size_t>(bytes), stream_());
  return {};
}

Status CudaInnerRuns::read(void* to, const void* from, int64_t bytes) {
  const std::string doing = "reading a condition or a count";
  TESSERA_CHECK(!own_, "a run that is captured reads nothing back");
  TESSERA_TRY(staging_.download(to, address(from), static_cast<size_t>(bytes), stream_(), doing));
  return arrive_(doing);
}

Status CudaInnerRuns::write(void* to, const void* from, int64_t bytes) {
  if (own_) { // the graph has the bytes in it: memory of the host would have to stay
    for (int64_t i = 0; i < bytes; ++i)
      TESSERA_CUDA_TRY(*context_, "writing the number of an iteration", cuMemsetD8Async,
                       address(static_cast<std::byte*>(to) + i), static_cast<const unsigned char*>(from)[i], 1,
                       stream_());
    return {};
  }
  return staging_.upload(address(to), from, static_cast<size_t>(bytes), stream_(),
                         "writing the number of an iteration");
}

void CudaInnerRuns::release(CUstream stream) {
  for (auto& block : retired_) {
    account_->give(MemoryAccount::Where::Device, block.bytes());
    block.release(*context_, stream);
  }
  retired_.clear();
}

} // namespace tessera::cuda
