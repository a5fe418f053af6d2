// The GPU code path without a GPU: the per-thread LLVM IR of a tile kernel, compiled for the host, run by an emulator
// of blocks and warps. One fiber is one thread; barriers, shuffles, votes and shared memory are functions of the
// emulator.
#pragma once
#include "codegen/llvm/gpu_compiler.h"

namespace tessera {

struct EmulateOptions {
  uint64_t seed = 0;         // order in which ready warps and threads run; several seeds find more
  bool poison_shared = true; // shared memory starts as NaN patterns
  bool detect_races = true;  // two threads touch a word of shared memory, one of them writing, with no barrier between
};
struct EmulateResult {
  std::vector<int> reported_sites;
  int64_t barriers = 0, shuffles = 0, shared_bytes = 0; // executed, of all blocks; bytes of one block
};
// Runs blocks [0, grid). Arguments as for tile::interpret. Errors: those of compile_gpu_kernel; CodegenError for a
// race, a barrier that not all threads of a block reach, a shuffle that lanes of a warp reach at different places, or
// an access outside of an argument or of shared memory, each naming the kernel, block and threads.
[[nodiscard]] Result<EmulateResult> emulate(const tile::Kernel& kernel, std::span<const tile::Argument> args,
                                            int64_t grid, const GpuTarget& target, const EmulateOptions& options = {});

} // namespace tessera
