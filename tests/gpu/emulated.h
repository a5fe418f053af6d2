// Kernels on the emulator in place of their interpreter, for the tests of other folders that are compiled into this
// program once more: those of schedules, which compare kernels with their loop nest, and those of fusion, which run
// plans.
#pragma once
#include "codegen/emulate/emulator.h"

namespace tessera::test {

// Runs a kernel; yields its report of bad indices. Kernels are compiled once for many sizes, some with another number of warps
// than they request; each run has another order of threads.
[[nodiscard]] Result<IndexReport> run_on_emulator(const tile::Kernel& kernel, std::span<const tile::Argument> args,
                                                  int64_t grid);
// Kernels are compiled for this architecture while the object lives, as they are, rather than for the default one.
class EmulatedArch {
public:
  explicit EmulatedArch(const std::string& arch);
  ~EmulatedArch();
  EmulatedArch(const EmulatedArch&) = delete;
  EmulatedArch& operator=(const EmulatedArch&) = delete;
};
// So far.
[[nodiscard]] int emulated_runs();

} // namespace tessera::test
