// What is known of the numbers in a tile before they are computed: where they count up by one, where they are equal,
// what divides them. This is what lets a load become one of 16 bytes.
//
// The facts of a tile value, per axis, all powers of two:
//
//   contiguity c     cut the axis into groups of c positions, from 0 on: within a group, v[x + 1] = v[x] + 1
//   constancy  k     cut into groups of k: within a group all are equal
//   divisibility d   d divides v[x] at the first position x of every group of contiguity
//   interval   s     of conditions: cut into groups of s; in each those that hold are neighbours, and in most groups
//                    all hold or none does. At least the constancy
//
// And of the tile as a whole its span: how far apart any two of its elements are at most, where that is known.
//
//   tile<[8], i64>                       contiguity   constancy   divisibility
//   0 1 2 3 4 5 6 7       range 8             8           1           2^40     (0 is divisible by everything)
//   8 9 10 11 12 ...      range 8 + 8         8           1           8
//   6 7 8 9 10 ...        range 8 + 6         8           1           2
//   0 1 0 1 0 1 0 1       range 8 mod 2       2           1           2^40
//   0 0 4 4 8 8 12 12     (range 8 / 2) * 4   1           2           4
//   3 3 3 3 3 3 3 3                           1           8           1
//
// A load of f16 at range + 8 from a pointer aligned to 16 bytes: groups of 8 are 16 bytes, start at multiples of 16, so
// each is one access. Its mask, range + 8 < n, is as good: if 8 divides n, then 8 neighbours that start at a multiple
// of 8 are all below n or none is, so the comparison has constancy 8. Whatever divides n, its interval is 8: only where
// the row ends some of a group are below n.
//
// Forward dataflow: facts start as unknown and are joined where paths meet (loop-carried values, results of if), until
// nothing changes. Of a scalar the facts are those of a tile of one element.
//
// What is assumed: integers wrap, and the facts hold of wrapped numbers, since powers of two divide 2^64 and 2^32. Only
// signs, which divisions need, and spans, which only say what is cheap, take sums and products of indices to fit their
// type, and parameters with a `multiple` to be extents: not negative, and not 0 where a number that matters is divided
// by one.
#pragma once
#include "codegen/tile/tile.h"

namespace tessera::layout {

inline constexpr int64_t kMaxDivisor = int64_t{1} << 40;

struct AxisInfo {
  // Per axis of the tile; of a scalar one entry.
  std::vector<int64_t> contiguity, constancy, divisibility, interval;
  // Per axis, v[x + 1] - v[x] where it is one number for the whole axis: what a strided access costs depends on it.
  std::vector<std::optional<int64_t>> stride;
  std::optional<int64_t> span;     // how far apart two elements of the tile are, at most: what is spread over few lines
  std::optional<int64_t> constant; // all elements are this integer
  bool non_negative = false;

  // What divides v[x] at all x that are multiples of `group` (a power of two) along `axis`.
  [[nodiscard]] int64_t divisor(int axis, int64_t group) const;
  // What divides every element.
  [[nodiscard]] int64_t divisor() const;
  // "contiguity [1, 8] constancy [4, 1] divisibility [8, 8] constant 3 non-negative"
  [[nodiscard]] std::string str() const;
  bool operator==(const AxisInfo&) const = default;
};

// By value id, of every data value (pointers have empty facts). The kernel must have passed verify.
[[nodiscard]] std::vector<AxisInfo> axis_info(const tile::Kernel& kernel);

} // namespace tessera::layout
