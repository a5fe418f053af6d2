#include "runtime/cuda/gemm_sizes.h"
#include <algorithm>
#include <bit>

namespace tessera::cuda {
namespace {

constexpr int64_t kAligned = 128; // bytes; no library looks at more

// At least `least`, divisible by the same powers of two as `distance`, up to kAligned bytes.
int64_t with_alignment_of(int64_t distance, int64_t least, int64_t bytes) {
  const int64_t most = kAligned / bytes, unit = distance == 0 ? most : std::min(distance & -distance, most);
  int64_t count = (least + unit - 1) / unit;
  if (unit < most && count % 2 == 0) ++count;
  return count * unit;
}

void grow(GemmMatrix& x, int64_t rows, int64_t cols, int64_t bytes) {
  const bool apart = x.batch_stride >= x.ld * (x.cols - 1) + x.rows; // and not between each other's columns
  if (x.ld < rows) x.ld = with_alignment_of(x.ld, rows, bytes);
  x.rows = rows;
  x.cols = cols;
  if (const int64_t extent = x.ld * (x.cols - 1) + x.rows; apart && x.batch_stride < extent)
    x.batch_stride = with_alignment_of(x.batch_stride, extent, bytes);
}

} // namespace

int64_t rounded_size(int64_t n, int64_t parts) {
  if (n <= parts) return n;
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n - 1)));
  const int64_t unit = std::max<int64_t>(1, below / parts);
  return (n + unit - 1) / unit * unit;
}

int64_t size_below(int64_t n, int64_t parts) {
  if (n <= 1) return 0;
  if (n - 1 <= parts) return n - 1;
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n - 1)));
  const int64_t unit = std::max<int64_t>(1, below / parts);
  return (n - 1) / unit * unit;
}

GemmProblem on_grid(GemmProblem problem, const VaryingSizes& varying, int64_t operand_bytes, int64_t result_bytes) {
  if (varying.m) problem.m = rounded_size(problem.m, kSizeParts);
  if (varying.n) problem.n = rounded_size(problem.n, kSizeParts);
  if (varying.k) problem.k = rounded_size(problem.k, kSizeParts);
  if (varying.batch) problem.batch = rounded_size(problem.batch, kBatchParts);
  auto operand = [&](GemmMatrix& x, int64_t rows, int64_t cols) {
    x.transposed ? grow(x, cols, rows, operand_bytes) : grow(x, rows, cols, operand_bytes);
  };
  operand(problem.a, problem.m, problem.k);
  operand(problem.b, problem.k, problem.n);
  grow(problem.c, problem.m, problem.n, result_bytes);
  return problem;
}

} // namespace tessera::cuda
