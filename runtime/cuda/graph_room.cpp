#include "runtime/cuda/graph_room.h"
#include "runtime/cuda/replay.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

struct Taken {
  std::shared_ptr<int64_t> total;
  int64_t bytes = 0;
  std::shared_ptr<const void> counted;
  ~Taken() {
    if (total) *total -= bytes;
  }
};

} // namespace

std::shared_ptr<const void> GraphRoom::take(Replays& user, size_t steps) {
  const int64_t bytes = kGraph + kStep * static_cast<int64_t>(steps);
  if (std::find(users_.begin(), users_.end(), &user) == users_.end()) users_.push_front(&user);
  while (*bytes_ + bytes > most_bytes_ && drop_oldest(user)) {
  }
  auto taken = std::make_shared<Taken>();
  auto counted = account_->hold(MemoryAccount::Where::Host, bytes, "a graph of a shape's steps");
  while (!counted.ok() && drop_oldest(user))
    counted = account_->hold(MemoryAccount::Where::Host, bytes, "a graph of a shape's steps");
  if (!counted.ok()) return nullptr;
  taken->counted = std::move(*counted);
  taken->bytes = bytes;
  taken->total = bytes_;
  *bytes_ += bytes;
  return taken;
}

void GraphRoom::used(const Replays& user) {
  if (!users_.empty() && users_.front() == &user) return;
  const auto at = std::find(users_.begin(), users_.end(), &user);
  if (at != users_.end()) users_.splice(users_.begin(), users_, at);
}

void GraphRoom::leave(const Replays& user) {
  users_.remove_if([&](const Replays* other) { return other == &user; });
}

bool GraphRoom::drop_oldest(const Replays& but) {
  const auto oldest = std::find_if(users_.rbegin(), users_.rend(), [&](const Replays* other) { return other != &but; });
  if (oldest == users_.rend()) return false;
  (*oldest)->drop_all(); // leaves
  return true;
}

} // namespace tessera::cuda
