// The cache of shape plans.
#include "runtime/device.h"
#include <algorithm>

namespace tessera {

size_t ShapePlanCache::KeyHash::operator()(const Key& key) const {
  uint64_t h = key.size();
  for (int64_t k : key) h = (h ^ static_cast<uint64_t>(k)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
  return h;
}

SegmentPlan* ShapePlanCache::find(int segment, const Variant::CallState& call) {
  looked_for_.assign(1, segment);
  Variant::append_key(call, looked_for_);
  const auto found = by_key_.find(looked_for_);
  if (found == by_key_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, found->second);
  if (current_.size() <= static_cast<size_t>(segment)) current_.resize(static_cast<size_t>(segment) + 1);
  return current_[static_cast<size_t>(segment)] = plans_.front().plan.get();
}

void ShapePlanCache::forget(Entries::iterator entry) {
  std::replace(current_.begin(), current_.end(), entry->plan.get(), static_cast<SegmentPlan*>(nullptr));
  bytes_ -= entry->bytes;
  code_ -= entry->plan->code_bytes;
  by_key_.erase(entry->key);
  plans_.erase(entry);
}

void ShapePlanCache::drop(SegmentPlan* plan) {
  const auto entry = std::find_if(plans_.begin(), plans_.end(), [&](const Entry& e) { return e.plan.get() == plan; });
  if (entry != plans_.end()) forget(entry);
}

void ShapePlanCache::clear() {
  by_key_.clear();
  plans_.clear();
  current_.clear();
  bytes_ = code_ = 0;
}

bool ShapePlanCache::forget_oldest() {
  for (auto it = plans_.end(); it != plans_.begin();) {
    --it;
    if (std::find(current_.begin(), current_.end(), it->plan.get()) != current_.end()) continue;
    forget(it);
    return true;
  }
  return false;
}

Result<SegmentPlan*> ShapePlanCache::insert(int segment, std::unique_ptr<SegmentPlan> plan) {
  Entry fresh;
  fresh.key.assign(1, segment);
  fresh.key.insert(fresh.key.end(), plan->key.begin(), plan->key.end());
  fresh.bytes = plan->host_bytes();
  fresh.plan = std::move(plan);
  if (current_.size() <= static_cast<size_t>(segment)) current_.resize(static_cast<size_t>(segment) + 1);
  current_[static_cast<size_t>(segment)] = nullptr;
  while ((bytes_ + fresh.bytes > most_bytes_ || code_ + fresh.plan->code_bytes > most_code_) && forget_oldest()) {
  }
  auto counted = account_->hold(MemoryAccount::Where::Host, fresh.bytes, "the plan of a shape");
  while (!counted.ok() && forget_oldest())
    counted = account_->hold(MemoryAccount::Where::Host, fresh.bytes, "the plan of a shape");
  TESSERA_ASSIGN(fresh.counted, std::move(counted));
  plans_.push_front(std::move(fresh));
  try {
    by_key_[plans_.front().key] = plans_.begin();
  } catch (...) {
    plans_.pop_front();
    throw;
  }
  bytes_ += plans_.front().bytes;
  code_ += plans_.front().plan->code_bytes;
  return current_[static_cast<size_t>(segment)] = plans_.front().plan.get();
}

} // namespace tessera
