// Inserts barriers: records what the threads of a block accessed since the last barrier, in the order of emission.
// Accesses that are pending at the end of a region may conflict with a loop's next iteration or with code behind an if.
#pragma once
#include "codegen/layout/warpgroup.h"
#include "codegen/tile/tile.h"
#include <algorithm>

namespace tessera::gpu {

// How the threads of a program access memory through a pointer.
struct GlobalAccess {
  enum class Kind : uint8_t { Read, Write, Atomic } kind = Kind::Read;
  tile::ValueId pointer = -1;
  tile::ValueId offset = -1;
  bool tile = false; // a scalar is read by all threads and written by thread 0
  // The offsets are a whole aligned tile in row-major order, so that another iteration of a loop accesses the same
  // elements or none of them.
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
  // Shared memory that a block may use on every supported GPU (99 KB on the smallest), rounded down. Kernels with more
  // scratch were scheduled for a GPU that has it, at most kMaxShared; they get kExchangeBytes in addition, and what one
  // exchange needs beyond that.
  static constexpr int64_t kSharedLimit = 96 << 10, kMaxShared = 227 << 10, kExchangeBytes = layout::kExchangeBytes;

  // `shared_bytes`: that a block of the target may use; 0: kMaxShared.
  explicit Hazards(const tile::Kernel& kernel, int64_t shared_bytes = 0)
      : kernel_(kernel), most_(shared_bytes > 0 ? shared_bytes : kMaxShared) {}

  // True if the access needs a barrier before it: another thread may still have to read, or may not yet have written,
  // the same memory. Two accesses with one offset value in one layout without copies stay within a thread.
  [[nodiscard]] bool conflicts(const GlobalAccess& access) const;
  void touch(GlobalAccess access);

  // Shared memory that no pending access uses, aligned to 16. Nothing if only a barrier would free enough, or the bytes
  // exceed the limit.
  [[nodiscard]] std::optional<int64_t> find_shared(int64_t bytes) const;
  // An exchange that fits no other way may have all that the target's blocks have. False if that is not enough.
  [[nodiscard]] bool extend_for(int64_t bytes);
  void touch_shared(SharedRange range);
  // Shared memory that stays reserved to the end of the kernel, below all that find_shared returns.
  [[nodiscard]] std::optional<int64_t> reserve_shared(int64_t bytes);
  // The same for scratch, before any code is emitted.
  [[nodiscard]] std::optional<int64_t> reserve_scratch(int64_t bytes);
  [[nodiscard]] bool shared_is_pending() const { return !pending_.shared.empty(); }
  [[nodiscard]] int64_t shared_bytes() const { return shared_bytes_; } // used by a block
  [[nodiscard]] int64_t reserved_bytes() const { return reserved_; }   // to the end of the kernel

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
  // At the end of a loop's body: true if the next iteration, up to its first barrier, conflicts with a pending access.
  // Its offsets have other values, so a buffer that is read and written conflicts even through one offset value.
  [[nodiscard]] bool next_round_conflicts() const;
  void leave_loop();
  void enter_branch() { ++depth_; } // a barrier inside is not always executed
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
  int64_t reserved_ = 0, shared_bytes_ = 0, most_, limit_ = std::min(kSharedLimit, most_);
};

} // namespace tessera::gpu
