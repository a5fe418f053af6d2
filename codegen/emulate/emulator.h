// The GPU code path without a GPU: the per-thread LLVM IR of a tile kernel, compiled for the host, run by an emulator
// of blocks and warps. One fiber is one thread; barriers, shuffles, votes and memory are functions of the emulator that
// check how they are used. docs/emulator.md
#pragma once
#include "codegen/llvm/gpu_compiler.h"
#include <memory>

namespace tessera {

struct EmulateOptions {
  uint64_t seed = 0;         // order in which ready warps and threads run; several seeds find more
  bool poison_shared = true; // shared memory starts as NaN patterns
  // Two threads of a block touch a byte of shared memory, one of them writing, with no barrier between; in global
  // memory the same, but for two writes, of which one wins.
  bool detect_races = true;
  // Threads meet at the barrier of this place, but it orders nothing: where no race is found then, with whatever sizes
  // and seeds, the barrier is not needed.
  int ignored_barrier = -1;
};
struct EmulateResult {
  std::vector<int> reported_sites; // at most one: of several violations any one is told, as on a GPU
  int64_t barriers = 0, shuffles = 0, shared_bytes = 0; // executed, of all blocks; bytes of one block
  std::vector<int> barrier_places;                      // of executed barriers of the block, ascending
};

// A kernel compiled for the emulator, to be run many times. Immutable; runs may go on side by side.
class EmulatedProgram {
public:
  // Errors: those of compile_gpu_kernel.
  [[nodiscard]] static Result<EmulatedProgram> compile(const tile::Kernel& kernel, const GpuTarget& target);
  // Runs blocks [0, grid). Arguments as for tile::interpret; written ones are changed when all blocks have ended well.
  // Errors: BadInput for arguments that do not fit the parameters; CodegenError for a race, a barrier that not all
  // threads of a block reach, a shuffle that lanes of a warp reach at different places, an access outside of every
  // argument or of shared memory, one that is not aligned to its size, and a write to a parameter that is not marked
  // written, each naming the kernel, block and threads.
  [[nodiscard]] Result<EmulateResult> run(std::span<const tile::Argument> args, int64_t grid,
                                          const EmulateOptions& options = {}) const;
  [[nodiscard]] int threads() const;
  [[nodiscard]] int64_t shared_bytes() const;

private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

// Both in one.
[[nodiscard]] Result<EmulateResult> emulate(const tile::Kernel& kernel, std::span<const tile::Argument> args,
                                            int64_t grid, const GpuTarget& target, const EmulateOptions& options = {});

} // namespace tessera
