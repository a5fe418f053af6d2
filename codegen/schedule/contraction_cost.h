// The time that a contraction takes by a schedule, predicted, in the terms of cost.h:
//
//   time    = launch + start + max(memory, compute) + epilogue
//   memory  = bytes / bandwidth, and bytes that blocks read or store / bandwidth of the level-2 cache
//   compute = tiles one after another on a multiprocessor * steps along the depth * time of a step
//   step    = |tensor cores, issue, shared memory|, but not less than the latency of a load / tiles in flight
//
// Where warpgroups compute the products (wgmma), a producer fills stages with bulk copies meanwhile: a step takes what its
// products take and the wait for a stage. One block is resident on a multiprocessor, as it has most registers. Programs
// that take tiles in turn fill the first stages of the next tile while they store one.
//
// Blocks of a cluster read the tile of the right factor once. Each of their steps waits for the slower one.
//
// A left factor that warpgroups compute takes issue slots of the consumers in each step: for its loads and for its arithmetic,
// of every warpgroup that shares its rows. They overlap with the products of the step before.
//
// A factor that is a load in whole accesses is copied to shared memory asynchronously. Others pass through registers:
// loads of fewer bytes, one instruction each, and what is computed of them, take issue slots that the products wait for.
//
// Blocks that share a tile have a segment of the depth each. They store partial sums and the last one adds them, through
// the level-2 cache, at the share of its bandwidth that a multiprocessor has.
#pragma once
#include "codegen/schedule/cost.h"

namespace tessera {

// Parameters: parts and multiples of the target's figures, issue slots.
struct ContractionCostModel {
#define TESSERA_CONTRACTION_COST_PARAMETERS(X)                                                                         \
  X(tensor, 0.8)         /* of the rate of tensor cores */                                                             \
  X(overlap, 4)          /* exponent of |a, b| */                                                                      \
  X(copy, 4)             /* slots of an asynchronous copy: its address, its mask */                                    \
  X(window, 20)          /* of one under a mask of its own: the position in the image, its bounds */                   \
  X(load, 6)             /* of another load, and of putting what it yields into shared memory */                       \
  X(element, 1.5)        /* of an element that passes through registers */                                             \
  X(fragment, 1.2)       /* of a product of fragments, and of reading them */                                          \
  X(step, 0.2)           /* latencies of the level-2 cache: a step's barrier, and the first of its products */         \
  X(copied, 1.6)         /* latencies of the level-2 cache and the memory: of a copy */                                \
  X(turn, 0.7)           /* latencies of the level-2 cache: a step of a block from barrier to barrier, without */      \
  X(chained, 2)          /* latencies of shared memory: fragments, which are read when those before are multiplied */  \
  X(start, 3)            /* memory latencies: until the first tiles are there */                                       \
  X(alone, 1.9)          /* slots of an instruction behind the sums where a scheduler has one warp */                  \
  X(stored, 3)           /* slots of an element of the sums: converted, moved to another thread, stored */             \
  X(registers, 40)       /* registers of a thread without sums */                                                      \
  X(registers_loaded, 1) /* of an element that passes through registers */                                             \
  X(spill, 1)            /* of the time, for each share of registers that is missing */                                \
  X(bandwidth, 0.85)     /* of the memory's bandwidth */                                                               \
  X(cache, 0.6)          /* of the bandwidth of the level-2 cache */                                                   \
  X(tail, 0.9)           /* of the part of the last wave that is idle */                                               \
  X(group_rate, 0.89)    /* of the rate of products by warpgroups */                                                   \
  X(group_step, 0.7)     /* latencies of the level-2 cache: their wait for a stage */                                  \
  X(group_copy, 3)       /* memory latencies: of a bulk copy */                                                        \
  X(group_stored, 9)     /* slots of an element of their sums, as `stored` */                                          \
  X(group_end, 2)        /* memory latencies: from a tile's last products until it is stored */                        \
  X(group_start, 3)      /* memory latencies: until the first stages are there */                                      \
  X(group_window, 6)     /* memory latencies: beyond that, of boxes in which windows lie */                            \
  X(group_cluster, 9)    /* latencies of the level-2 cache: that a step waits longer for a stage of a cluster. Not */  \
                         /* measured: no price chooses one; `tessera tune` measures them */                            \
  X(group_load, 2)       /* slots of a warp's load from a stage, of which each yields a left factor's word */          \
  X(group_cache, 1.6)    /* of the bandwidth of the level-2 cache that bulk copies reach, in whole lines */
#define X(name, value) double name = value;
  TESSERA_CONTRACTION_COST_PARAMETERS(X)
#undef X
  double last = CostModel{}.last; // us: until the last block of a tile knows that it is, and has the first partial sums
};

[[nodiscard]] Cost contraction_cost(const SizedFacts& facts, const Schedule& schedule, const Target& device,
                                    const ContractionCostModel& model = {});

} // namespace tessera
