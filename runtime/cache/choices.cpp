#include "runtime/cache/choices.h"
#include "base/guarded.h"
#include <algorithm>
#include <cstring>
#include <vector>

namespace tessera {
namespace {

// The payload: for each choice the lengths of key and bytes, of 32 bits each, then these; the last used one last.
constexpr size_t kLengths = 2 * sizeof(uint32_t);

std::shared_ptr<const std::string> record_of(std::string_view key, std::string_view bytes) {
  const uint32_t lengths[] = {static_cast<uint32_t>(key.size()), static_cast<uint32_t>(bytes.size())};
  auto out = std::make_shared<std::string>(reinterpret_cast<const char*>(lengths), sizeof lengths);
  out->append(key).append(bytes);
  return out;
}

// False at the end, and where the rest is no choice.
bool take(std::string_view& from, std::string_view& key, std::string_view& bytes) {
  uint32_t lengths[2];
  if (from.size() < kLengths) return false;
  std::memcpy(lengths, from.data(), sizeof lengths);
  from.remove_prefix(kLengths);
  if (uint64_t{lengths[0]} + lengths[1] > from.size()) return false;
  key = from.substr(0, lengths[0]);
  bytes = from.substr(lengths[0], lengths[1]);
  from.remove_prefix(key.size() + bytes.size());
  return true;
}

} // namespace

KeptChoices::KeptChoices(std::shared_ptr<Cache> cache, std::string creator, std::string device, Milliseconds delay)
    : creator_(std::move(creator)), device_(std::move(device)), delay_(delay), cache_(std::move(cache)) {
  if (!cache_ || !process_.here()) return;
  const std::string there = read(*cache_);
  seen_ = hash128(there);
  add(there);
}

KeptChoices::~KeptChoices() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  if (thread_.joinable()) thread_.join();
  flush();
}

Hash128 KeptChoices::hash() const {
  std::string text = "choices 1"; // the payload's format
  for (const std::string* part : {&creator_, &device_}) text += std::to_string(part->size()) + ':' + *part;
  return hash128(text);
}

std::string KeptChoices::read(Cache& cache) const {
  const auto bytes = cache.find(EntryKind::Choice, hash());
  return bytes ? std::string(bytes->begin(), bytes->end()) : std::string();
}

// A choice that is known already stays.
void KeptChoices::add(std::string_view payload) {
  for (std::string_view key, bytes; take(payload, key, bytes);)
    if (std::string k(key); !known_.contains(k)) known_.emplace(std::move(k), Known{record_of(key, bytes), ++calls_});
  make_room();
}

void KeptChoices::make_room() {
  if (known_.size() <= kMax) return;
  std::vector<uint64_t> used;
  for (const auto& [key, known] : known_) used.push_back(known.used);
  const auto last = used.begin() + static_cast<std::ptrdiff_t>(known_.size() - kMax + kMax / 8);
  std::nth_element(used.begin(), last, used.end());
  std::erase_if(known_, [&](const auto& k) { return k.second.used < *last; });
}

std::optional<std::string> KeptChoices::find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto it = known_.find(key);
  if (it == known_.end()) return std::nullopt;
  it->second.used = ++calls_;
  return it->second.record->substr(kLengths + key.size());
}

void KeptChoices::put(const std::string& key, std::string_view bytes) {
  auto record = record_of(key, bytes);
  std::lock_guard lock(mutex_);
  known_.insert_or_assign(key, Known{std::move(record), ++calls_});
  make_room();
  unwritten_ = true;
  if (!cache_ || !process_.here()) return;
  if (!thread_.joinable())
    (void)guarded("starting a thread", [&]() -> Status { // without one, flush() writes
      thread_ = std::thread([this] { work(); });
      return {};
    });
  more_.notify_one();
}

void KeptChoices::flush() {
  (void)guarded("writing choices", [&]() -> Status {
    write();
    return {};
  });
}

void KeptChoices::write() {
  const std::lock_guard one(writing_);
  std::unique_lock lock(mutex_);
  if (!unwritten_ || !cache_) return;
  unwritten_ = false;
  const auto cache = cache_;
  lock.unlock();
  const std::string others = read(*cache);
  lock.lock();
  if (hash128(others) != seen_) add(others);
  std::vector<Known> all;
  all.reserve(known_.size());
  for (const auto& [key, known] : known_) all.push_back(known);
  lock.unlock();
  std::sort(all.begin(), all.end(), [](const Known& a, const Known& b) { return a.used < b.used; });
  std::string payload;
  for (const Known& known : all) payload += *known.record;
  cache->store(EntryKind::Choice, hash(), {creator_, device_, std::to_string(all.size()) + " choices"}, payload);
  seen_ = hash128(payload);
  lock.lock();
  ++writes_;
}

void KeptChoices::keep_in(std::shared_ptr<Cache> cache) {
  if (!cache) return;
  {
    std::lock_guard lock(mutex_);
    if (cache_ && cache_->directory() == cache->directory()) return;
  }
  flush();
  const std::string there = read(*cache);
  const std::lock_guard one(writing_);
  std::lock_guard lock(mutex_);
  seen_ = hash128(there);
  cache_ = std::move(cache);
  unwritten_ = !known_.empty();
  add(there);
}

int64_t KeptChoices::writes() const {
  std::lock_guard lock(mutex_);
  return writes_;
}

void KeptChoices::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    more_.wait(lock, [&] { return stop_ || unwritten_; });
    more_.wait_for(lock, delay_, [&] { return stop_; }); // what is put meanwhile is written with it
    if (stop_) return;                                   // the destructor writes
    lock.unlock();
    flush();
    lock.lock();
  }
}

} // namespace tessera
