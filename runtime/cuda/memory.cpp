#include "runtime/cuda/memory.h"
#include <algorithm>
#include <cstring>

namespace tessera::cuda {

Status DeviceBlock::reserve(Context& context, int64_t bytes, CUstream stream, const std::string& what) {
  if (bytes <= bytes_) return {};
  release(context, stream); // first, so that its room can be used again
  TESSERA_ASSIGN(address_, context.allocate(bytes, stream, what));
  bytes_ = bytes;
  return {};
}

void DeviceBlock::release(Context& context, CUstream stream) {
  if (!address_) return;
  context.release(std::exchange(address_, 0), std::exchange(bytes_, 0), stream);
}

namespace {
// Pieces in a slot begin at whole lines.
constexpr size_t kLine = 64;
size_t lines(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
} // namespace

Staging::~Staging() {
  Context::Current current(*context_);
  for (auto& slot : slots_) {
    // Nobody takes note of an error here; the memory must not be freed under a copy.
    if (slot.busy && slot.done) (void)slot.done->wait();
    if (slot.data) context_->driver().cuMemFreeHost(slot.data);
  }
}

Status Staging::close(Slot& slot, CUstream stream) {
  if (slot.used == 0) return {};
  TESSERA_TRY(slot.done->record(stream));
  slot.busy = true;
  return {};
}

Status Staging::empty(Slot& slot) {
  if (slot.busy) {
    if (auto status = slot.done->wait(); !status.ok()) {
      abandon();
      return status;
    }
    for (const auto& a : slot.arrivals) std::memcpy(a.to, slot.data + a.offset, a.bytes);
  }
  slot.arrivals.clear();
  slot.busy = false;
  slot.used = 0;
  return {};
}

Result<Staging::Room> Staging::room(size_t wanted, CUstream stream) {
  TESSERA_CHECK(stream_ == stream || std::none_of(std::begin(slots_), std::end(slots_),
                                                  [](const Slot& s) { return s.used > 0 || s.busy; }),
                "copies are settled before another stream is used");
  stream_ = stream;
  if (slots_[current_].used == kSlotBytes) {
    TESSERA_TRY(close(slots_[current_], stream));
    current_ = (current_ + 1) % kSlots;
    TESSERA_TRY(empty(slots_[current_]));
  }
  auto& slot = slots_[current_];
  if (!slot.done) {
    TESSERA_ASSIGN(slot.done, Event::create(context_));
  }
  if (!slot.data) {
    void* data = nullptr;
    auto result = context_->driver().cuMemHostAlloc(&data, kSlotBytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      return Diagnostic(ErrorCode::OutOfMemory,
                        "cannot allocate " + std::to_string(kSlotBytes) + " bytes of pinned host memory");
    if (result != CUDA_SUCCESS) return context_->error(result, "cuMemHostAlloc");
    slot.data = static_cast<std::byte*>(data);
  }
  Room room{&slot, slot.used, std::min(wanted, kSlotBytes - slot.used)};
  slot.used = std::min(kSlotBytes, lines(slot.used + room.bytes));
  return room;
}

Status Staging::upload(CUdeviceptr to, const void* from, size_t bytes, CUstream stream, const std::string& doing) {
  for (size_t at = 0; at < bytes;) {
    TESSERA_ASSIGN(auto piece, room(bytes - at, stream));
    std::byte* pinned = piece.slot->data + piece.offset;
    std::memcpy(pinned, static_cast<const std::byte*>(from) + at, piece.bytes);
    TESSERA_CUDA_TRY(*context_, doing, cuMemcpyHtoDAsync, to + at, pinned, piece.bytes, stream);
    at += piece.bytes;
  }
  return {};
}

Status Staging::download(void* to, CUdeviceptr from, size_t bytes, CUstream stream, const std::string& doing) {
  for (size_t at = 0; at < bytes;) {
    TESSERA_ASSIGN(auto piece, room(bytes - at, stream));
    TESSERA_CUDA_TRY(*context_, doing, cuMemcpyDtoHAsync, piece.slot->data + piece.offset, from + at, piece.bytes,
                     stream);
    piece.slot->arrivals.push_back({static_cast<std::byte*>(to) + at, piece.offset, piece.bytes});
    at += piece.bytes;
  }
  return {};
}

Status Staging::settle() {
  TESSERA_TRY(close(slots_[current_], stream_));
  // Slots fill in turn: the oldest is the one after the current one.
  for (size_t i = 1; i <= kSlots; ++i) TESSERA_TRY(empty(slots_[(current_ + i) % kSlots]));
  return {};
}

void Staging::abandon() {
  for (auto& slot : slots_) {
    // The copies themselves may still be under way: wait for them, unless that, too, is an error.
    if (slot.busy && slot.done) (void)slot.done->wait();
    slot.arrivals.clear();
    slot.busy = false;
    slot.used = 0;
  }
}

} // namespace tessera::cuda
