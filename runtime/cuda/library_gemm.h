// A product of strided operands in the terms of cuBLAS: column-major matrices with leading dimensions, transposed or
// not, in batches at a constant distance. A pure function of shapes and strides.
//
// The idea. cuBLAS computes D = op(A) op(B) on column-major matrices. A row-major c is the column-major c', and
// c' = b' a', so the operands change places and each matrix is read as its transpose; a column-major c is computed as
// it is. An operand whose rows are dense is one transposition away from one whose columns are, so either will do.
//
//   q [b, h, s, d]  strides (s*h*d, d, h*d, 1)     rows dense, ld = h*d
//   k' [b, h, d, s] strides (s*h*d, d, 1, h*d)     columns dense, ld = h*d
//   c [b, h, s, s]  contiguous                     c' = k q':   A = k (op T), B = q' (op N), M = N = s, K = d
//   batch           b and h                        c goes on from h to b at one distance, q does not: no single stride
//
// Batch dimensions are folded into the rows where b stays the same and rows go on at the same distance (activations
// times weights become one product), then merged with each other where all three operands go on. Of those that are
// left, the largest is the batch of one call and the others repeat the call; cuBLASLt can also be given all of their
// addresses.
//
// A matrix that no leading dimension describes (rows that overlap or repeat) is taken apart: its rows, or columns,
// become a batch dimension of products of one row.
#pragma once
#include "runtime/library/call.h"

namespace tessera::cuda {

struct GemmMatrix {
  bool transposed = false;            // op; never of the result
  int64_t rows = 0, cols = 0, ld = 0; // as stored, column-major, before op
  int64_t batch_stride = 0;           // elements
};
struct GemmOffsets {
  int64_t a = 0, b = 0, c = 0; // elements, in cuBLAS's terms: a is the left matrix there
};
struct GemmProblem {
  bool swapped = false;        // the left matrix of cuBLAS is our b
  int64_t m = 0, n = 0, k = 0; // of cuBLAS: op(A) is m x k
  int64_t batch = 1;
  GemmMatrix a, b, c;
  GemmOffsets base;                 // where the first of each begins in its buffer
  std::vector<GemmOffsets> repeats; // of the whole batch, added to `base`; at least one unless the result is empty
  bool bias_along_rows = false;     // a bias in the requested dimension lies along the rows of the stored result
  [[nodiscard]] bool empty() const { return repeats.empty(); }
  // Every product on its own: base, repeats and batch multiplied out.
  [[nodiscard]] std::vector<GemmOffsets> all() const;
};
// c[..., m, n] = a[..., m, k] b[..., k, n], leading dimensions broadcast. `bias_dim`: dimension of c along which a bias
// lies, -1 when there is none; the orientation that suits it is taken where there is a choice. Errors: Internal where
// shapes contradict, UnsupportedFeature for strides that products of single rows cannot express either.
[[nodiscard]] Result<GemmProblem> describe_gemm(const Operand& a, const Operand& b, const Operand& c, int bias_dim,
                                                const std::string& name);

} // namespace tessera::cuda
