// Kernels whose texts differ only in integers that are added, multiplied or compared (start of a slice, ends of the
// parts of a concatenation) become one kernel with these integers as size parameters.
#pragma once
#include "codegen/tile/tile.h"

namespace tessera {

// The kernel with a parameter for each use of such a constant, after all other parameters, and the constants in the
// order of the parameters. Each use has its own parameter, so that kernels in which two of the numbers happen to be
// equal become equal, too. Divisors and constants of loops and memory stay constants, because code for them is better
// if they are known.
struct OutlinedKernel {
  tile::Kernel kernel;
  std::vector<int64_t> constants;
};
[[nodiscard]] OutlinedKernel outline_constants(const tile::Kernel& kernel);

} // namespace tessera
