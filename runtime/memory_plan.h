// Arena planning: where each temporary lies in one block of memory, so that those that live at the same time do not
// overlap.
//
// Lifetimes are step numbers and do not depend on sizes; sizes are known per shape, so a plan is made once per shape
// and kept. Buffers that take over another one's memory (in-place) are first merged into slots; slots are then placed.
// Two placements are made and the smaller one is taken: largest slot first, each at the lowest best-fitting gap among
// slots that live with it (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020: greedy
// by size), quadratic and therefore only for moderate counts; and first slot first with a list of free ranges, which
// takes each slot through at most as many ranges as slots live at the same time.
//
// Before that, slots go into memory that is there anyway while nobody needs it (Lent), largest first.
#pragma once
#include "runtime/executable.h"
#include <span>

namespace tessera {

inline constexpr int64_t kArenaAlignment = 64;
[[nodiscard]] inline int64_t aligned(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

struct PlannedBuffer {
  int64_t bytes = 0;
  int first = 0, last = 0; // steps, inclusive
  int in_place_of =
      -1; // index of another planned buffer whose memory this one takes over; its last is this one's first
};
// Memory next to the arena that is free at the steps from `first` to `last`: of an output before it is written, of an
// input that the caller has donated behind its last reader.
struct Lent {
  int64_t bytes = 0; // a multiple of kArenaAlignment
  int first = 0, last = 0;
};
struct MemoryPlan {
  std::vector<int64_t> offsets; // per buffer, multiples of kArenaAlignment
  std::vector<int> lent;        // per buffer: which memory it lies in, -1: the arena
  int64_t bytes = 0;            // of the arena
  int64_t lower_bound = 0;      // most bytes that live in the arena at one step: no plan can need less
};
// Error SizeOverflow when sizes add up to more than an address space.
[[nodiscard]] Result<MemoryPlan> plan_memory(std::span<const PlannedBuffer> buffers, std::span<const Lent> lent = {});

// The bytes of temporaries that live at the same step, for every step that no other step dominates, as functions of the
// sizes: what the report prints as "arena". An executor's plan is at least the greatest of them. Steps in order.
struct LiveBytes {
  int step;
  SymExpr bytes;
};
[[nodiscard]] std::vector<LiveBytes> symbolic_live_bytes(const Executable& executable);

} // namespace tessera
