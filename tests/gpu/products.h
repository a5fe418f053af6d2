// Kernels of one product of matrices, or of several in a loop, for warpgroups and for other tensor cores.
#pragma once
#include "harness.h"

namespace tessera::test {

// How a left factor is computed, in f32, before it is rounded.
enum class Left : uint8_t {
  Loaded,
  Scaled,     // a * rows[m]
  Normalised, // (a - rows[m]) * depths[k] + 1
  Gated,      // a / (1 + exp(-a)) * a2
};

struct ProductForm {
  DType dtype = DType::BF16, right = dtype;
  int m = 128, n = 128, k = 64;              // of a tile
  bool a_columns = false, b_columns = false; // a factor lies in memory by columns
  int num_stages = 3;
  bool persistent = false;
  bool epilogue = false; // relu(sum + bias) + residual; and the sum of each row of the tile
  // c = a b + (a b2 + a2 b): the first product is read in each iteration, the others follow each other and are carried.
  bool several = false;
  Left left = Left::Loaded;
  DType loaded = dtype; // of a
  int split = 1;        // programs that share a tile's sum
  // Programs of a cluster: they have neighbouring tiles along m, of which the last may have no rows, or along n.
  int cluster = 1;
  bool along_columns = false;

  [[nodiscard]] DType sum() const { return is_integer(dtype) ? DType::I32 : DType::F32; }
  [[nodiscard]] DType stored() const { return info(dtype).bits == 8 ? sum() : dtype; } // of c, bias, residual
};

// Programs that have a tile each, or a share of one; of a persistent product, the number of tiles for its programs.
int64_t programs_of(const ProductForm& form, int64_t m, int64_t n);
// c[m, n] = a[m, k] b[k, n] by tiles, all accesses masked by the sizes. Buffers: a, b, bias[n], residual[m, n], c,
// sums[m, columns of tiles] in sum(), of several products a2[m, k], b2[k, n], of a computed left factor rows[m], depths[k]
// of f32 and a2[m, k], and where programs share a tile partials[tiles, split, tile] of f32 and counters[tiles]; scalars: m, n, k, programs. Only the
// epilogue accesses bias, residual and sums.
tile::Kernel masked_product(const ProductForm& form);

} // namespace tessera::test
