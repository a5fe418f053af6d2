// Contractions: sums of products of two factors, each of which depends on outer axes on which the other one does not.
//
//   product       sum over k of a[b, m, k] * b[b, k, n]                     m: left, n: right, b: both
//   convolution   sum over c, t of x[n, c, y*s - p + t*d] * w[o, c, t]      n, y: left, o: right
//   in groups     the same, where x and w depend on the group of o         the group: both
//
// A factor is any scalar expression of loads: a cast, an activation, a dequantisation, a window with padding. What is
// computed of the sum is any expression as well. Tiles of both factors, [rows, depth] and [depth, columns], are
// multiplied by tensor cores, so that an element of a factor is read once for a tile of the other one. A schedule places
// axes by what depends on them:
//
//   axes                              product   convolution   placement
//   of one factor alone               m         n, y          rows of the tile
//   of the other one alone            n         o             columns
//   of both                           b         group         grid
//   reduced                           k         c             depth of both factors' tiles
//   reduced, one position of a tile             t             steps of the loop
//
//   for k = 0 to K step D num_stages=S carry(sum [R, C])
//     sum += dot(left [R, D], right [D, C])     loads of both under the masks of their two sides
//   the rest of the nest on [R, C]: bias, activation, residual; stores
//
// Where tiles are fewer than multiprocessors, `split_k` blocks share the sum of a tile (split-K). Each sums a segment of
// the depth and stores its partial sum in a workspace; the last one to arrive adds the partial sums in the order of
// the segments, so that the result has the same bits in every run, and computes the rest of the nest.
//
// Two blocks that are neighbours along the rows may be a cluster, which loads tiles of the right factor once for both
// (layout/warpgroup.h). Where the number of tiles along the rows is odd, the last one of them has no rows: all of its
// accesses are masked.
//
// Rows along several axes are flattened, or a box: of a tile of 128 pixels, row r is at r / 64 of n, r / 8 % 8 of y and
// r % 8 of x. Then the pixels under one position t of the filter are a box of the image, shifted, which one bulk copy
// brings (layout/tensor_access.h); those outside of the image are zeros of the copy.
//
// Rows may be in groups, each multiplied by a matrix of its own: sum over k of a[t, k] * b[g(t), k, n], where g(t) counts
// ends of groups up to t. Then t is no axis of b: a tile has rows of one group, which the program finds by bisection of
// the ends, and loads no others' results. Tile p is one of group g if
//
//   first(g) <= p < first(g + 1), first(g) = floor(begin(g) / R) + g    its rows begin at begin(g) + (p - first(g)) R
//
// so that there are ceil(T / R) + G tiles of rows, some without any. Rows behind the last group are one more, whose sums
// are 0.
//
// Factors may be 0 but for positions of the depth from one to another that data say, as those of a group of it. A program
// reads the tiles between them.
//
// A factor that is no load is computed for each tile of the other one's rows or columns again. Warpgroups take such a
// left factor from registers (layout/warpgroup.h), so that the tile of what it is computed from may come by bulk copies;
// a computed right one is for the tensor cores of warps, and so is the left one where both are.
//
// A factor must be equal to a value of f16, bf16 or an 8-bit float, or of i8 or u8 where the sum is i32, so that rounding
// it to the tile's dtype changes nothing: a load of such memory is, and so is what the model rounds. A factor of matmul_of_parts
// is a sum of such values, each less than 2^-7 of the one before. Its products are those of two parts, but for the ones
// below the last bit of an f32:
//
//   main    = sum over k of a0 b0                           in f32, a step of the depth at a time
//   small   = sum over k of a0 b1, a1 b0, a0 b2, a1 b1, a2 b0
//   the sum = main + small, or main where that is not finite
//
// Tensor cores cut off what sums of theirs do not hold, so that long ones err to one side. Within a step this is no more
// than rounding; `small` has room for it. Sums of 8-bit floats keep about 14 bits: each step's is added to f32, and a step
// is short.
#pragma once
#include "codegen/schedule/domain.h"
#include "codegen/schedule/schedule.h"
#include <array>

namespace tessera {

// A tile's needs of warpgroups: tiles of sums; bits of an element of a left factor that is computed, 0 of a loaded one.
struct WarpgroupNeeds {
  int sums = 1, left_bits = 0;
  bool right_computed = false;
};

struct Contraction {
  static constexpr int kFragmentRows = 16, kFragmentColumns = 8; // least extents of tiles
  static constexpr int kMaxSplit = 64;                           // blocks that share a tile's sum
  static constexpr int kMaxCluster = 2;                          // blocks that share tiles of a factor
  static constexpr int kPromotedDepth = 128; // products that tensor cores sum of 8-bit floats, at most

  ScalarId fold = -1; // the sum
  // Values whose product is summed, which the dtype of the tiles represents exactly: a plain load, else a cast. A
  // factor is the sum of its parts, the largest first; both have as many.
  std::array<std::vector<ScalarId>, 2> factors;
  std::array<bool, 2> computed = {false, false}; // some part of the factor is no load
  DType dtype = DType::F16;                      // f16 or bf16 of both factors; of 8 bits: that of the first
  std::array<uint64_t, 2> deps = {0, 0};         // axes on which the factor depends, but for the number of its group
  std::array<uint64_t, 2> axes = {0, 0};         // outer axes on which this factor alone depends; neither is empty
  std::array<uint64_t, 2> depth = {0, 0};        // reduced axes on which the factor depends

  // Groups of rows of a product.
  struct Groups {
    ScalarId group = -1; // the number of the group: an i64 in [0, count]
    uint64_t axis = 0;   // of the rows, as a bit
    size_t factor = 1;   // that has a matrix for each group
    int ends = -1;       // the buffer of their ends: i32 or i64 [count], not decreasing
    SymExpr count;
  };
  std::optional<Groups> groups;
  // Groups of the depth: both factors are 0 at positions before `begin` and from `end` on, i64 values that do not vary
  // along the depth.
  struct Range {
    ScalarId begin = -1, end = -1;
    uint64_t axes = 0; // on which they depend
  };
  std::optional<Range> range;

  [[nodiscard]] int parts() const { return static_cast<int>(factors[0].size()); }
  // Products of parts, and tiles of sums that they need: both 1 for factors of one part.
  [[nodiscard]] int products() const { return parts() * (parts() + 1) / 2; }
  [[nodiscard]] int sums() const { return parts() > 1 ? 3 : promoted() ? 2 : 1; }
  // True if the sum of each step is added to another one in f32.
  [[nodiscard]] bool promoted() const { return parts() > 1 || (is_float(dtype) && info(dtype).bits == 8); }
  [[nodiscard]] int max_depth() const; // of a tile, in elements
  // True if factors[factor] may have tiles along `rows` axes of the domain that the other factor does not depend on.
  [[nodiscard]] bool along(size_t factor, uint64_t rows) const { return rows != 0 && (rows & ~axes[factor]) == 0; }
  // The factor with tile rows along `rows` and the other one with columns along `columns`; -1: there is none.
  [[nodiscard]] int left(uint64_t rows, uint64_t columns) const {
    for (size_t i : {size_t{0}, size_t{1}})
      if (along(i, rows) && along(1 - i, columns)) return static_cast<int>(i);
    return -1;
  }

  // The needs of a tile with rows and columns along these axes.
  [[nodiscard]] WarpgroupNeeds warpgroup_needs(uint64_t rows, uint64_t columns) const;

  // Nothing if the nest is no contraction, or tensor cores do not multiply its factors' dtype.
  [[nodiscard]] static std::optional<Contraction> find(const Graph& graph, const LoopNest& nest, const Domain& domain);
};

// True if warpgroups of the device may multiply factors in such tiles.
[[nodiscard]] bool by_warpgroups(const TileShape& tile, const WarpgroupNeeds& needs, const Target& device);

} // namespace tessera
