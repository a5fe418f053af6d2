// Blocks of a cluster: they run together on one thread of the system, wait for each other at barriers of the cluster,
// and write to each other's shared memory. A block that is in no cluster is one of its own.
//
// One race detector (order.h) serves all: the threads of block r are its agents [r * threads, (r + 1) * threads), and
// block r's shared memory lies at r * shared_stride.
#pragma once
#include "codegen/emulate/block.h"

namespace tessera::emu {

class Cluster {
public:
  [[nodiscard]] static Result<std::unique_ptr<Cluster>> make(const Launch& launch);
  // Runs blocks [index * size, (index + 1) * size). Error CodegenError: a race, a collective that not all threads reach,
  // an access out of bounds, a block that may end before another one writes to it.
  [[nodiscard]] Status run(int64_t index);
  [[nodiscard]] int size() const { return launch_.cluster; }
  [[nodiscard]] const Block& block(int rank) const { return *blocks_[static_cast<size_t>(rank)]; }

  // For blocks. The block of this rank; null, and an error of the thread, where there is none.
  [[nodiscard]] Block* find(Thread& t, int rank);
  [[nodiscard]] Order& order() { return *order_; } // of an asynchronous kernel
  [[nodiscard]] int64_t shared_stride() const;
  void barrier(Thread& t, int32_t site); // of all threads
  void fail(const std::string& what);    // unless there is an error
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  [[nodiscard]] Thread* next(); // the thread that runs now; null: none can
  [[nodiscard]] Fiber& caller() { return caller_; }

private:
  explicit Cluster(const Launch& launch) : launch_(launch) {}
  [[nodiscard]] Block* copier(bool waits);
  void check_ends();

  const Launch launch_;
  std::optional<Order> order_;
  std::vector<std::unique_ptr<Block>> blocks_;
  Fiber caller_;
  int arrived_ = 0; // threads that wait at the cluster's barrier
  // Which of the blocks with ready threads runs: the first one, the last one, any.
  enum class Turn : uint8_t { First, Last, Any } turn_ = Turn::First;
  std::optional<Diagnostic> error_;
};

} // namespace tessera::emu
