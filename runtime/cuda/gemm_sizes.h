// A grid of sizes: calls whose sizes vary from call to call take what a library chooses for sizes of the grid.
#pragma once
#include "runtime/cuda/library_gemm.h"

namespace tessera::cuda {

struct VaryingSizes {
  bool m = false, n = false, k = false, batch = false;
};

// How much a size may be rounded up: an eighth, which a library's choice of tiles hardly notices. Batches only say how
// many tiles there are.
inline constexpr int64_t kSizeParts = 8, kBatchParts = 1;

// The smallest number of the grid that is not below n. The grid divides each power of two into `parts`, itself one.
[[nodiscard]] int64_t rounded_size(int64_t n, int64_t parts);
// The largest number of the grid that is below n; 0 where n is 1 or less.
[[nodiscard]] int64_t size_below(int64_t n, int64_t parts);

// The problem with the sizes that vary rounded up. Distances between its columns and matrices grow where they must, and
// keep their alignment: the largest power of two that divides them.
[[nodiscard]] GemmProblem on_grid(GemmProblem problem, const VaryingSizes& varying, int64_t operand_bytes,
                                  int64_t result_bytes);

} // namespace tessera::cuda
