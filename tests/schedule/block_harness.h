// Kernels for blocks of threads, beside those for hosts, in every test that compares schedules with their nest.
#pragma once
#include "codegen/schedule/block_choose.h"
#include "harness.h"

namespace tessera::test {

// The kernels of a GPU, then those of the same plans with small tiles, so that short rows loop and few points fill
// several blocks. Each is verified, printed and parsed again; all tiles are powers of two.
std::vector<ScheduledKernel> block_kernels(const Problem& p);
// Those that a GPU of 132 multiprocessors gets.
std::vector<ScheduledKernel> lower_blocks(const Problem& p, const Schedule& wanted = {});
bool conditions_hold(const Graph& graph, const ScheduledKernel& kernel, const Sizes& sizes);

} // namespace tessera::test
