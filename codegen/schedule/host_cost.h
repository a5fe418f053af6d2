// The time that a kernel of a host takes by a schedule, predicted, in the terms of cost.h:
//
//   time    = launch + |memory, issue + latency|
//   memory  = bytes / bandwidth of what holds them: memory, or a cache of the core that the working set fits
//   issue   = instructions of all vectors, ends of lines and rows / issue rate
//   latency = chains of accumulators, distant cache lines, programs and their partial results
//
// Work is divided between `programs` cores, whatever the cores of the machine: results do not depend on them.
#pragma once
#include "codegen/schedule/cost.h"

namespace tessera {

// Parameters: cycles of a core, but where another unit stands.
struct HostCostModel {
#define TESSERA_HOST_COST_PARAMETERS(X)                                                                                \
  X(line, 10)       /* to begin a line: indices of the other axes, its phases */                                       \
  X(step, 2)        /* to go on to the next tile */                                                                    \
  X(phase, 4)       /* to begin a phase of a line: full tiles, vectors, the masked end */                              \
  X(narrow, 2)      /* of a gathered element, where it has less than 32 bits */                                        \
  X(masked, 4)      /* the masked end of a line, in addition to its vector */                                          \
  X(row, 20)        /* the end of a row */                                                                             \
  X(fold, 15)       /* for each reduction there: lanes are folded */                                                   \
  X(alone, 0.6)     /* of the instructions, that a vector waits for its own results; less for several of a step */     \
  X(chain, 4)       /* latency of an addition, which the next one of an accumulator waits for */                       \
  X(online, 3)      /* of a vector: its chunk is read twice, and moves the reference of sums */                        \
  X(way, 4096)      /* bytes: lines of the level-1 cache that far apart share a set */                                 \
  X(ways, 16)       /* lines in a set of the level-2 cache */                                                          \
  X(hoisted, 0.1)   /* an access that does not move with the tile */                                                   \
  X(shuffle, 1)     /* of a register: one step of a transposition */                                                   \
  X(spill, 1)       /* of the instructions, for each share of registers that is missing */                             \
  X(temporaries, 4) /* registers of an elementary function */                                                          \
  X(window, 100)    /* instructions: that a core looks ahead */                                                        \
  X(fills, 10)      /* cache lines: that a core loads at a time */                                                     \
  X(segment, 64)    /* bytes that a contiguous segment costs in addition to its own */                                 \
  X(program, 300)   /* of a program */                                                                                 \
  X(partial, 3000)  /* partial results of a program, counted and merged by the last one */                             \
  X(programs, 16)   /* programs that run at a time */                                                                  \
  X(overlap, 0.4)   /* of the lesser one of memory and instructions, that is not hidden by the other */
#define X(name, value) double name = value;
  TESSERA_HOST_COST_PARAMETERS(X)
#undef X
};

[[nodiscard]] Cost host_cost(const SizedFacts& facts, const Schedule& schedule, const Target& device,
                             const HostCostModel& model = {});

} // namespace tessera
