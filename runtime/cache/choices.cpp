#include "runtime/cache/choices.h"

namespace tessera {

KeptChoices::KeptChoices(std::shared_ptr<Cache> cache, std::string creator, std::string device)
    : cache_(std::move(cache)), creator_(std::move(creator)), device_(std::move(device)) {}

Hash128 KeptChoices::hash(const std::string& key) const {
  std::string text;
  for (const std::string* part : {&creator_, &device_, &key}) text += std::to_string(part->size()) + ':' + *part;
  return hash128(text);
}

std::optional<std::string> KeptChoices::find(const std::string& key) const {
  {
    std::lock_guard lock(mutex_);
    if (auto it = known_.find(key); it != known_.end()) return it->second;
  }
  std::optional<std::string> found;
  if (cache_)
    if (auto bytes = cache_->find(EntryKind::Choice, hash(key))) found.emplace(bytes->begin(), bytes->end());
  std::lock_guard lock(mutex_);
  return known_.try_emplace(key, std::move(found)).first->second; // another thread may have put one
}

void KeptChoices::put(const std::string& key, std::string_view bytes) {
  {
    std::lock_guard lock(mutex_);
    known_.insert_or_assign(key, std::string(bytes));
  }
  if (cache_) cache_->store(EntryKind::Choice, hash(key), {creator_, device_, key}, bytes);
}

} // namespace tessera
