// The time that a launch of a schedule takes, predicted: terms in microseconds, the schedule of the least sum is
// chosen.
//
//   time    = launch + |memory, latency, issue, shared|       |a, b| = (a^e + b^e)^(1/e)
//   memory  = bytes / bandwidth + bytes read again / bandwidth of the level-2 cache
//   latency = blocks one after another on a multiprocessor * dependent chain of a block
//   issue   = instruction slots of all warps / issue rate
//   shared  = cycles in which shared memory and the level-1 cache answer
//
// A block that has a multiprocessor to itself loads, computes and stores in turn: e is 1, and times add up. The more
// blocks are resident the more these phases overlap: e grows. The latency term is Little's law: blocks that wait for
// memory hide each other's waiting as far as registers, threads and shared memory let them be resident. A copy of 268
// MB with 4, 8, 16 and 32 KB in flight on each of 132 multiprocessors takes 185, 109, 76 and 69 us.
//
// Code counts, too: elements of a thread * instructions of an element * copies of the tile's body. Time grows with what
// the instruction cache has no room for; a schedule with more than two of these is chosen only where every one has more
// (choose_blocks.cpp). So a legal schedule always exists, and none takes many seconds to assemble.
#pragma once
#include "codegen/schedule/sized_facts.h"
#include "codegen/schedule/tuned.h"

namespace tessera {

// Parameters of the cost, fitted by tools/fit: parts and multiples of the target's figures, microseconds, bytes, and
// issue slots.
struct CostModel {
#define TESSERA_COST_PARAMETERS(X)                                                                                     \
  X(bandwidth, 1.022)            /* of the peak bandwidth of memory */                                                 \
  X(alone, 5)                    /* of a multiprocessor's share of that, that one may take */                          \
  X(cache, 2)                    /* of the bandwidth of the level-2 cache */                                           \
  X(chain, 0.5)                  /* memory latencies: from the start of a block to the arrival of its loads */         \
  X(loop, 0.7271)                /* memory latencies: a further tile of a loop */                                      \
  X(prefetched, 0.4796)          /* of that, where the tile is prefetched (num_stages 2) */                            \
  X(again, 1.2)                  /* of that, where the tile comes from the level-2 cache */                            \
  X(shared_tile, 2.011)          /* of that, where it comes from shared memory */                                      \
  X(async_tile, 0.4976)          /* of that, where tiles are copied asynchronously */                                  \
  X(fold, 0.0007228)             /* us: a reduction within a warp */                                                   \
  X(barrier, 0.02721)            /* us: a block barrier, for each doubling of a row's warps */                         \
  X(exchange, 0.00505)           /* us: a tile that changes threads through shared memory */                           \
  X(grid_barrier, 4)             /* grid barriers of the target: one barrier of the blocks of a row */                 \
  X(waiting_block, 2.72e-05)     /* us: each block that waits there */                                                 \
  X(partial_result, 0.005839)    /* us: a partial result of another block that a thread reads */                       \
  X(last, 1.837)                 /* us: results of several blocks folded by the last one */                            \
  X(element, 0.01)               /* us: an element of a thread, computed one after another */                          \
  X(tail, 0.9106)                /* of the part of the last wave that is idle */                                       \
  X(segment, 64.8)               /* bytes that a contiguous segment costs in addition to its own */                    \
  X(unhinted, 0.1166)            /* of what is read: cost of loads without a cache hint */                             \
  X(partial, 144.1)              /* bytes that each end of a warp's store costs that begins within a sector */         \
  X(level2, 0.1218)              /* of the level-2 cache, that is still there when it is read again */                 \
  X(access, 1.671)               /* issue slots of a load or store */                                                  \
  X(split_access, 0.6974)        /* of taking the elements of a misaligned access from two aligned ones */             \
  X(simple, 0.002068)            /* of an addition */                                                                  \
  X(elementary, 0.03888)         /* of one instruction of an elementary function */                                    \
  X(convert, 0.3277)             /* of an element of less than 32 bits, loaded or stored */                            \
  X(divide, 75.96)               /* of a division of an index by an unknown extent */                                  \
  X(divide_constant, 0.02017)    /* by a constant */                                                                   \
  X(setup, 28.22)                /* of a thread, for all else */                                                       \
  X(tap, 1)                      /* of an instruction of a window */                                                   \
  X(tap_chain, 2.2)              /* cycles: the same, where a warp has a scheduler to itself */                        \
  X(shuffle, 43.94)              /* of a fold's step within a warp */                                                  \
  X(q, 1.103)                    /* exponent of |a, b| of many resident blocks, minus 1 */                             \
  X(overlap, 1.333)              /* resident blocks after the first at which half of that is reached */                \
  X(prefetch, 1.541)             /* resident blocks that prefetching of the next tile is worth */                      \
  X(spill, 0.6523)               /* of the time, for each share of registers that is missing */                        \
  X(code, 1)                     /* of the time, for each instruction cache of code beyond the first */                \
  X(registers, 5.442)            /* registers of a thread without values */                                            \
  X(registers_live, 0.8519)      /* of a value alive */                                                                \
  X(registers_loaded, 0.07461)   /* of a 32-bit word that is loaded */                                                 \
  X(registers_loop, 1.538)       /* of a loop */                                                                       \
  X(registers_stream, 1.884)     /* of an access */                                                                    \
  X(registers_unknown, 8)        /* of an extent that is not known */                                                  \
  X(registers_row, 0.4908)       /* of a row of a thread's tile */                                                     \
  X(registers_prefetched, 2.021) /* of a word of the next tile */                                                      \
  X(registers_peel, 9.879)       /* of misaligned rows */                                                              \
  X(registers_mask, 0.01738)     /* of an element of these */                                                          \
  X(registers_fold, 9.573)       /* of an accumulator */                                                               \
  X(registers_resident, 0.1)     /* of an element of a loop whose tiles are resident in shared memory */               \
  X(registers_free, 0.05289)     /* of registers beyond these, that are used because they are there */                 \
  X(registers_error, 0.15)       /* standard error of the sum of these, as a part of it */
#define X(name, value) double name = value;
  TESSERA_COST_PARAMETERS(X)
#undef X
};
template <class Model, class F>
void each_parameter(Model& m, F&& f) {
#define X(name, value) f(#name, m.name);
  TESSERA_COST_PARAMETERS(X)
#undef X
}

struct Cost {
  double us = 0; // all of it
  double launch = 0, memory = 0, latency = 0, issue = 0, shared = 0;
  // The numbers that it was computed from:
  double blocks = 1, resident = 1;               // resident: on a multiprocessor
  double registers = 32;                         // of a thread, that it needs not to spill
  double most = 255;                             // that it may have
  double taken = 32;                             // that the assembler gives it
  double code = 0;                               // counted instructions of the kernel's text (kInstructionBytes)
  double bytes = 0, again = 0;                   // moved from and to memory; read again
  [[nodiscard]] PredictedTime predicted() const; // the terms by name
};
// `blocks_per_row`: blocks that share a row, or columns.
[[nodiscard]] Cost cost(const SizedFacts& facts, const Schedule& schedule, int64_t blocks_per_row, const Target& device,
                        const CostModel& model);

} // namespace tessera
