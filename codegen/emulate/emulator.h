// GPU emulator: the per-thread LLVM IR of a tile kernel, compiled for the host and run with emulated blocks and warps.
// A fiber is a thread; barriers, shuffles, votes and memory accesses call the emulator, which checks their use.
// docs/emulator.md
#pragma once
#include "codegen/llvm/gpu_compiler.h"
#include <memory>

namespace tessera {

struct EmulatedKernel;

struct EmulateOptions {
  uint64_t seed = 0;         // of the order in which ready threads run; several seeds find more errors
  bool poison_shared = true; // shared memory starts as NaN patterns
  // A race: two threads of a block access a byte of shared memory, at least one writes, and no barrier lies between. In
  // global memory two writes are allowed; one of them wins.
  bool detect_races = true;
  // Site of a barrier that synchronises but orders no memory: if no race is found for any sizes and seeds, the barrier
  // is redundant. -1: none.
  int ignored_barrier = -1;
  // Registers of a multiprocessor, of which warpgroups of a kernel with the config "min_blocks" give back and take some.
  int64_t registers = 64 << 10;
};
struct EmulateResult {
  IndexReport report;
  int64_t barriers = 0, shuffles = 0, shared_bytes = 0; // executed by all blocks; bytes of one block
  std::vector<int> barrier_sites;                       // of executed block barriers, ascending
};

// A kernel compiled for the emulator. Immutable; runs may be concurrent.
class EmulatedProgram {
public:
  // Errors: those of compile_gpu_kernel.
  [[nodiscard]] static Result<EmulatedProgram> compile(const tile::Kernel& kernel, const GpuTarget& target);
  // A program of code that has been compiled for the parameters of `kernel`.
  [[nodiscard]] static Result<EmulatedProgram> link(const tile::Kernel& kernel, EmulatedKernel compiled);
  // Runs the blocks of the grid. Arguments as for tile::interpret; written arguments are updated if all blocks end without an
  // error. Errors: BadInput for arguments that do not fit the parameters, and for a grid that is no multiple of the cluster
  // along x; CodegenError, with kernel, block and threads,
  // for a race, a barrier that not all threads of a block reach, a shuffle that the lanes of a warp reach at different
  // sites, an access out of bounds or not aligned to its size, and a write to a parameter that is not marked written.
  [[nodiscard]] Result<EmulateResult> run(std::span<const tile::Argument> args, Grid grid,
                                          const EmulateOptions& options = {}) const;
  [[nodiscard]] int threads() const;
  [[nodiscard]] int cluster() const; // blocks
  [[nodiscard]] int64_t shared_bytes() const;

private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

// Compiles and runs.
[[nodiscard]] Result<EmulateResult> emulate(const tile::Kernel& kernel, std::span<const tile::Argument> args, Grid grid,
                                            const GpuTarget& target, const EmulateOptions& options = {});

} // namespace tessera
