// Where a barrier is needed: what the threads of a block have touched since the last one. Emission goes along the text;
// what is pending at its end is what a loop's next round, or what follows an if, may run into.
#pragma once
#include "codegen/layout/linear_layout.h"
#include "codegen/tile/tile.h"

namespace tessera::gpu {

// How a program's threads touch memory behind a pointer.
struct GlobalAccess {
  enum class Kind : uint8_t { Read, Write, Atomic } kind = Kind::Read;
  tile::ValueId pointer = -1;
  tile::ValueId offset = -1;
  bool tile = false; // a scalar is read by all threads and written by thread 0
  // The offsets are all those from a multiple of the tile's elements on, in row-major order: in another round of a loop
  // the same ones, or none of them.
  bool whole = false;
  layout::LinearLayout layout; // of a tile
  bool operator==(const GlobalAccess&) const = default;
};
struct SharedRange { // bytes
  int64_t begin = 0, end = 0;
  bool operator==(const SharedRange&) const = default;
};

class Hazards {
public:
  // What a block gets on every GPU that has code here (99 KB on the smallest), rounded down. Kernels whose scratch
  // takes more were scheduled for a GPU that has it, at most so much; they get kExchangeBytes besides.
  static constexpr int64_t kSharedLimit = 96 << 10, kMostShared = 227 << 10, kExchangeBytes = 16 << 10;

  explicit Hazards(const tile::Kernel& kernel) : kernel_(kernel) {}

  // Whether the access must wait for a barrier: another thread may still have to read, or may not yet have written,
  // what it touches. Two accesses through one offset value in one layout without copies are each thread's own affair.
  [[nodiscard]] bool conflicts(const GlobalAccess& access) const;
  void touch(GlobalAccess access);

  // Shared memory that no pending access touches, aligned to 16; nothing where only a barrier frees enough, or nothing
  // does (bytes beyond what fits).
  [[nodiscard]] std::optional<int64_t> find_shared(int64_t bytes) const;
  void touch_shared(SharedRange range);
  // Memory that stays taken to the end of the kernel, below all that find_shared yields.
  [[nodiscard]] std::optional<int64_t> reserve_shared(int64_t bytes);
  // The same before anything is emitted, of scratch.
  [[nodiscard]] std::optional<int64_t> reserve_scratch(int64_t bytes);
  [[nodiscard]] bool shared_is_pending() const { return !pending_.shared.empty(); }
  [[nodiscard]] int64_t shared_bytes() const { return shared_bytes_; } // that a block needs
  [[nodiscard]] int64_t shared_limit() const { return limit_; }        // that it may have

  void barrier();

  // Regions: what is pending before and after them.
  struct Pending {
    std::vector<GlobalAccess> global;
    std::vector<SharedRange> shared;
  };
  [[nodiscard]] Pending pending() const { return pending_; }
  void set(Pending pending) { pending_ = std::move(pending); }
  void merge(const Pending& other);
  void enter_loop();
  // At the end of a loop's body: whether the next round, up to its first barrier, runs into what is pending. Its
  // offsets are other numbers then, so that one buffer read and written is a conflict even through one offset value.
  [[nodiscard]] bool next_round_conflicts() const;
  void leave_loop();
  void enter_branch() { ++depth_; } // a barrier in there may not be reached
  void leave_branch() { --depth_; }

private:
  // Accesses of a loop's body before its first barrier.
  struct Head {
    int depth = 0;
    bool open = true;
    Pending accesses;
  };
  [[nodiscard]] bool conflict(const GlobalAccess& before, const GlobalAccess& after, bool next_round) const;

  const tile::Kernel& kernel_;
  Pending pending_;
  std::vector<Head> heads_;
  int depth_ = 0;
  int64_t reserved_ = 0, shared_bytes_ = 0, limit_ = kSharedLimit;
};

} // namespace tessera::gpu
