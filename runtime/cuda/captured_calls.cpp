#include "runtime/cuda/captured_calls.h"
#include <algorithm>

namespace tessera::cuda {

Result<std::shared_ptr<CapturedCalls>> CapturedCalls::of(Context& context) {
  return context.attachment_of<CapturedCalls>("captured calls");
}

// The context goes, and with it what could run.
CapturedCalls::~CapturedCalls() {
  for (const auto& holding : holdings_)
    for (const auto& block : holding->blocks_) context_.release_unordered(block.address, block.bytes);
  for (const auto& block : unused_) context_.release_unordered(block.address, block.bytes);
}

void CapturedCalls::Holding::begin(std::initializer_list<std::shared_ptr<const void>> uses) {
  kept_.insert(uses);
  for (Block& block : blocks_) block.used = 0;
}

Result<std::byte*> CapturedCalls::Holding::take(int64_t bytes, const char* what) {
  bytes = rounded_bytes(bytes);
  auto fits = [&](const Block& b) { return b.bytes - b.used >= bytes; };
  auto found = std::find_if(blocks_.begin(), blocks_.end(), fits);
  if (found == blocks_.end()) {
    blocks_.reserve(blocks_.size() + 1);
    TESSERA_ASSIGN(Block fresh, all_.block(bytes, what, *account_));
    found = blocks_.insert(blocks_.end(), std::move(fresh));
  }
  auto* at = reinterpret_cast<std::byte*>(found->address) + found->used;
  found->used += bytes;
  return at;
}

void CapturedCalls::collect() {
  const auto gone = std::stable_partition(holdings_.begin(), holdings_.end(), [](const auto& h) { return !*h->gone_; });
  for (auto holding = gone; holding != holdings_.end(); ++holding) {
    for (auto& block : (*holding)->blocks_) {
      block.used = 0;
      block.counted = nullptr;
      unused_.push_back(std::move(block));
    }
    (*holding)->blocks_.clear();
    (*holding)->kept_.clear();
  }
  holdings_.erase(gone, holdings_.end());
  holdings_count_ = holdings_.size() + unused_.size();
}

void CapturedCalls::free_unused() {
  if (holdings_count_ == 0) return;
  const std::lock_guard lock(mutex_);
  collect();
  for (const auto& block : unused_) context_.release_unordered(block.address, block.bytes);
  unused_.clear();
  holdings_count_ = holdings_.size();
}

Result<CapturedCalls::Holding::Block> CapturedCalls::block(int64_t bytes, const char* what, MemoryAccount& account) {
  const std::lock_guard lock(mutex_);
  collect();
  // The smallest that is large enough, unless most of it would be of no use.
  auto best = unused_.end();
  for (auto it = unused_.begin(); it != unused_.end(); ++it)
    if (it->bytes >= bytes && it->bytes / 2 <= bytes && (best == unused_.end() || it->bytes < best->bytes)) best = it;
  const int64_t room = best == unused_.end() ? DeviceBlock::room_for(bytes) : best->bytes;
  TESSERA_ASSIGN(auto counted, account.hold(MemoryAccount::Where::Device, room, what));
  if (best != unused_.end()) {
    Holding::Block block = std::move(*best);
    unused_.erase(best);
    block.counted = std::move(counted);
    return block;
  }
  Holding::Block block;
  TESSERA_ASSIGN(block.address, context_.allocate_unordered(room, what));
  block.bytes = room;
  block.counted = std::move(counted);
  return block;
}

namespace {
// Runs on a thread of the driver's, which must not call it.
void CUDA_CB graph_is_gone(void* data) {
  const std::unique_ptr<std::shared_ptr<std::atomic<bool>>> gone(
      static_cast<std::shared_ptr<std::atomic<bool>>*>(data));
  **gone = true;
}
} // namespace

Result<std::shared_ptr<CapturedCalls::Holding>> CapturedCalls::holding(const Context::Capture& capture, CUstream stream,
                                                                       const void* owner,
                                                                       const std::shared_ptr<MemoryAccount>& account) {
  constexpr const char* kDoing = "recording a call into the caller's graph";
  const std::lock_guard lock(mutex_);
  for (const auto& h : holdings_)
    if (h->capture_ == capture.id && h->stream_ == stream && h->owner_ == owner && !*h->gone_) return h;
  auto fresh = std::shared_ptr<Holding>(new Holding(*this));
  fresh->capture_ = capture.id;
  fresh->stream_ = stream;
  fresh->owner_ = owner;
  fresh->account_ = account;
  fresh->gone_ = std::make_shared<std::atomic<bool>>(false);
  holdings_.reserve(holdings_.size() + 1);
  auto owned = std::make_unique<std::shared_ptr<std::atomic<bool>>>(fresh->gone_);
  CUuserObject object = nullptr;
  TESSERA_CUDA_TRY(context_, kDoing, cuUserObjectCreate, &object, owned.get(), graph_is_gone, 1,
                   CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  (void)owned.release(); // the object's
  const auto retained = context_.driver().cuGraphRetainUserObject(capture.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (retained != CUDA_SUCCESS) {
    (void)context_.driver().cuUserObjectRelease(object, 1);
    return context_.error(retained, "cuGraphRetainUserObject", kDoing);
  }
  holdings_.push_back(fresh);
  holdings_count_ = holdings_.size() + unused_.size();
  return fresh;
}

} // namespace tessera::cuda
