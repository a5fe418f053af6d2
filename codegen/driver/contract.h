// The contract of a kernel: the accesses of its buffers, and the assumptions about sizes with which it was compiled. A
// kernel is compiled for all values of its symbols that the environment admits, so under these assumptions all its
// accesses are in bounds. The runtime checks both against the buffers of each shape.
#pragma once
#include "codegen/schedule/schedule.h"

namespace tessera {

// The box over which an epilogue's kernel runs: [begin, begin + count) per axis of `nest`, the nest of the whole
// result. Empty: the kernel is not an epilogue.
struct LaunchDomain {
  std::span<const SymExpr> begin, count;
  const LoopNest* nest = nullptr;
};

// Fills launch.access and launch.facts. `kernel` has the graph values of the buffers, and which may share memory.
void add_contract(KernelLaunch& launch, const Graph& graph, const ScheduledKernel& kernel, const LaunchDomain& domain);

} // namespace tessera
