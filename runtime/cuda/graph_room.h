// The host's memory that the CUDA graphs of an executor take. A driver keeps kilobytes for each step of a graph, and each
// shape of a model has graphs of its own: they are counted, and those that were launched least recently go.
#pragma once
#include "runtime/memory_account.h"
#include <list>

namespace tessera::cuda {

class Replays;

// Used by one thread at a time, as its executor is.
class GraphRoom {
public:
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;
  static constexpr int64_t kGraph = 64 << 10, kStep = 12 << 10; // that a graph and each of its steps take, about

  explicit GraphRoom(std::shared_ptr<MemoryAccount> account, int64_t most_bytes = kMaxBytes)
      : account_(std::move(account)), most_bytes_(most_bytes) {}
  GraphRoom(const GraphRoom&) = delete;
  GraphRoom& operator=(const GraphRoom&) = delete;

  // Room for a graph of so many steps, for as long as what is returned lives; others' graphs may be dropped for it. Null:
  // the account's limit leaves none.
  [[nodiscard]] std::shared_ptr<const void> take(Replays& user, size_t steps);
  void used(const Replays& user);  // it launches a graph
  void leave(const Replays& user); // it has no graphs any more

private:
  using Users = std::list<Replays*>; // launched most recently first
  [[nodiscard]] bool drop_oldest(const Replays& but);

  const std::shared_ptr<MemoryAccount> account_;
  const int64_t most_bytes_;
  const std::shared_ptr<int64_t> bytes_ = std::make_shared<int64_t>(0); // that graphs have
  Users users_;
};

} // namespace tessera::cuda
