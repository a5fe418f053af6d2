#include "runtime/cuda/memory.h"
#include "base/log.h"
#include "base/recover.h"
#include <algorithm>
#include <cstring>

namespace tessera::cuda {

Status DeviceBlock::reserve(Context& context, int64_t bytes, CUstream stream, const std::string& what) {
  if (bytes <= bytes_) return {};
  bytes = room_for(bytes);
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
// The driver has two handles for the default stream.
CUstream known(CUstream stream) { return stream == CU_STREAM_LEGACY ? nullptr : stream; }

// `later` goes on once what is on `earlier` by now is done.
Status order(const std::shared_ptr<Context>& context, CUstream earlier, CUstream later) {
  TESSERA_ASSIGN(auto event, Event::create(context));
  TESSERA_TRY(event->record(earlier));
  return event->wait_on(later);
}
} // namespace

Result<std::unique_ptr<SharedBlock>> SharedBlock::create(std::shared_ptr<Context> context, int64_t bytes,
                                                         CUstream stream, const std::string& what) {
  std::unique_ptr<SharedBlock> shared(new SharedBlock(std::move(context), known(stream)));
  Context::Current current(*shared->context_);
  TESSERA_TRY(current.status());
  TESSERA_ASSIGN(const auto capture, shared->context_->capture_of(stream));
  if (capture) {
    TESSERA_ASSIGN(shared->unordered_, shared->context_->allocate_unordered(bytes, what));
    shared->unordered_bytes_ = bytes;
  } else {
    TESSERA_TRY(shared->block_.reserve(*shared->context_, bytes, stream, what));
  }
  return shared;
}

SharedBlock::~SharedBlock() {
  Context::Current current(*context_);
  if (unordered_) {
    context_->release_unordered(unordered_, unordered_bytes_);
    return;
  }
  for (CUstream other : others_) {
    auto ordered = order(context_, other, stream_);
    if (!ordered.ok()) TESSERA_LOGF(LogChannel::Memory, ordered.error().str()); // the stream is gone, and its work done
  }
  block_.release(*context_, stream_);
}

Status SharedBlock::wait_on(CUstream stream) {
  stream = known(stream);
  if (stream == stream_) return {};
  Context::Current current(*context_);
  TESSERA_TRY(current.status());
  if (std::find(others_.begin(), others_.end(), stream) == others_.end()) others_.push_back(stream);
  return order(context_, stream_, stream);
}

namespace {
// Pieces in a slot begin at whole lines.
constexpr size_t kLine = 64;
size_t lines(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
} // namespace

Staging::~Staging() {
  Context::Current current(*context_);
  abandon(); // the memory must not be freed under a copy
  for (auto& slot : slots_)
    if (slot.data) context_->driver().cuMemFreeHost(slot.data);
}

void Staging::take_out(Slot& slot) {
  for (const auto& a : slot.arrivals) copy(static_cast<std::byte*>(a.to), slot.data + a.offset, a.bytes);
  slot.arrivals.clear();
  slot.busy = false;
  slot.used = 0;
}

Result<Staging::Room> Staging::room(size_t wanted, CUstream stream) {
  TESSERA_MEMORY_CHECK(stream_ == stream || !in_use(), "all copies have arrived before another stream is used");
  stream_ = stream;
  if (slots_[current_].used == kSlotBytes) {
    TESSERA_TRY(slots_[current_].done->record(stream));
    slots_[current_].busy = true;
    current_ = (current_ + 1) % kSlots;
    if (slots_[current_].busy) TESSERA_TRY(slots_[current_].done->wait());
    take_out(slots_[current_]);
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
    copy(pinned, static_cast<const std::byte*>(from) + at, piece.bytes);
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

bool Staging::in_use() const {
  return std::any_of(std::begin(slots_), std::end(slots_), [](const Slot& s) { return s.used > 0 || s.busy; });
}

Status Staging::wait() {
  if (!in_use()) return {};
  TESSERA_CUDA_TRY(*context_, "", cuStreamSynchronize, stream_);
  arrived();
  return {};
}

void Staging::arrived() {
  for (auto& slot : slots_) take_out(slot);
}

void Staging::abandon() {
  if (!in_use()) return;
  // An error here is the one that led to this, or the next call will report it.
  (void)context_->driver().cuStreamSynchronize(stream_);
  for (auto& slot : slots_) {
    slot.arrivals.clear();
    slot.busy = false;
    slot.used = 0;
  }
}

void Staging::copy(std::byte* to, const std::byte* from, size_t bytes) const {
  constexpr size_t kGrain = size_t{256} << 10; // also what one core reads of a mapped file while another is started
  if (!pool_ || bytes < 2 * kGrain) {
    std::memcpy(to, from, bytes);
    return;
  }
  pool_->parallel_for(static_cast<int64_t>(bytes), kGrain, [to, from](int64_t begin, int64_t end, int) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

} // namespace tessera::cuda
