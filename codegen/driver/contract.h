// The contract of a kernel's code: what it may access of its buffers, and what its compile took for granted of sizes.
// A kernel is compiled for every value of its symbols that the environment admits, so within these facts it stays
// inside of the values that it was compiled for, whatever the values of the symbols are. The runtime holds both against
// the buffers of each shape.
#pragma once
#include "codegen/schedule/schedule.h"

namespace tessera {

// The box that an epilogue's kernel runs over: [begin, begin + count) per axis of `nest`, the nest of the whole result.
// Empty: a kernel of its own.
struct LaunchDomain {
  std::span<const SymExpr> begin, count;
  const LoopNest* nest = nullptr;
};

// Fills launch.access and launch.facts. `kernel` tells the graph values of the buffers, and which may share memory.
void add_contract(KernelLaunch& launch, const Graph& graph, const ScheduledKernel& kernel, const LaunchDomain& domain);

} // namespace tessera
