// Kernels whose texts differ only in integers that are added, multiplied or compared (where a slice begins, where the
// parts of a concatenation end): one kernel, with these integers as size parameters.
#pragma once
#include "codegen/tile/tile.h"

namespace tessera {

// The kernel with each use of such a constant a parameter of its own, behind all others, and the constants in the order
// of the parameters. A use of its own, so that kernels in which two of the numbers happen to be equal come out the
// same. Divisors and what loops and memory depend on stay constants: code for them is better when they are known.
struct OutlinedKernel {
  tile::Kernel kernel;
  std::vector<int64_t> constants;
};
[[nodiscard]] OutlinedKernel outline_constants(const tile::Kernel& kernel);

} // namespace tessera
