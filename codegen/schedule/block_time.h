// What a launch of a block schedule takes, estimated: enough to tell which schedules of a nest are worth measuring.
//
//   time   = kernel_us + greater(max(|memory, latency|, blocks * block_us), arithmetic)     |a, b| = sqrt(a^2 + b^2)
//   greater(a, b) = max(a, b) + 0.05 * min(a, b): of candidates that are bound by one alike the other tells
//   memory = bytes / 4.45 TB/s * slow(bytes under way on a multiprocessor) * tail + bytes read again / 9 TB/s
//
// Under way are the loads of the blocks that are resident: as many as registers, threads and what they keep in shared
// memory admit. Below 32 KB of them
// the memory waits for requests (268 MB copied on an H200):
//
//   KB under way   4     8     12    16    24    32 and more
//   slow           2.68  1.58  1.23  1.10  1.04  1
//
// A block that reduces waits for its row and has nothing under way meanwhile: it counts half. The tail is what a last,
// partly filled wave of blocks wastes; blocks end at different times, so half of it. Rows of a loop that are read again
// come from the level-2 cache. What blocks of rows take that are not held up by the memory,
//
//   latency = waves * (1.8 us * (1 + tiles after the first / 2) + 0.06 us * warps of a row * rounds of reductions)
//
// as if in each place that a multiprocessor has for a block one ran after the other, hides behind it in part. Tiles
// that are copied at once are all under way, and then waited for: each of them, in either round, takes 0.05 of the 1.8
// us (220 candidates of 19 kernels: the first by this estimate is 1 % slower than the best, and it is 10 % off on the
// average). Of blocks of columns:
//
//   latency = waves * (tiles of all rounds * (0.9 us + 0.04 us * elements of a thread + 0.05 us * warps) + 4 us of
//   teams)
//
// where the warps count if a later round stores along the rows, which they exchange.
// Arithmetic is lanes (idle ones, too) * instructions, at four warps' a cycle and multiprocessor. The numbers are an
// H200's, fitted to 8,500 measured candidates of 215 kernels; of another GPU only the ranking is worth something.
#pragma once
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/tuned.h"

namespace tessera {

struct LaunchCost {
  double blocks = 1;
  int threads = 32;        // of a block
  double registers = 32;   // of a thread, estimated, that it needs not to spill
  double most = 255;       // registers that it may have
  double bytes = 0;        // moved from and to memory
  double again = 0;        // bytes read again
  double kept = 0;         // bytes that a block keeps in shared memory
  double block_bytes = 0;  // of a block's loads that are under way at a time
  bool waits = false;      // for reductions
  double latency = 0;      // us of a block that has the memory for itself
  double instructions = 0; // of all lanes, idle ones included
};

// Of a plan at concrete sizes; nothing where a size is not among `sizes`.
[[nodiscard]] std::optional<LaunchCost> launch_cost(const BlockFacts& facts, const BlockPlan& plan,
                                                    const CallSizes& sizes);
[[nodiscard]] double estimate_us(const LaunchCost& cost, const Target& device);

} // namespace tessera
