// A grid of sizes: products whose sizes vary from call to call take the algorithm that a library chooses for a point of it.
#pragma once
#include "runtime/cuda/library_gemm.h"

namespace tessera::cuda {

struct VaryingSizes {
  bool m = false, n = false, k = false, batch = false;
};

// The smallest number of the grid that is not below n. The grid divides each power of two into `parts`, itself one.
[[nodiscard]] int64_t rounded_size(int64_t n, int64_t parts);

// The problem with the sizes that vary rounded up. Distances between its columns and matrices grow where they must, and
// keep their alignment: the largest power of two that divides them.
[[nodiscard]] GemmProblem on_grid(GemmProblem problem, const VaryingSizes& varying, int64_t operand_bytes,
                                  int64_t result_bytes);

} // namespace tessera::cuda
