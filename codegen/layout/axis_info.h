// Static facts about the integers in a tile: contiguity, equality, divisibility. They make a load one access of 16
// bytes.
//
// The facts of a tile value, per axis, all powers of two:
//
//   contiguity c     cut the axis into groups of c positions, from 0 on: within a group, v[x + 1] = v[x] + 1
//   constancy  k     cut into groups of k: within a group all are equal
//   divisibility d   d divides v[x] at the first position x of every group of contiguity
//   interval   s     of conditions: cut into groups of s; in each the true ones are contiguous, and in most groups
//                    all or none are true. At least the constancy
//
// And for the whole tile its span: the largest difference of two elements, if known.
//
//   tile<[8], i64>                       contiguity   constancy   divisibility
//   0 1 2 3 4 5 6 7       range 8             8           1           2^40     (0 is divisible by everything)
//   8 9 10 11 12 ...      range 8 + 8         8           1           8
//   6 7 8 9 10 ...        range 8 + 6         8           1           2
//   0 1 0 1 0 1 0 1       range 8 mod 2       2           1           2^40
//   0 0 4 4 8 8 12 12     (range 8 / 2) * 4   1           2           4
//   3 3 3 3 3 3 3 3                           1           8           1
//
// A load of f16 at range + 8 from a pointer aligned to 16 bytes: groups of 8 are 16 bytes and start at multiples of 16,
// so each is one access. Its mask, range + 8 < n, allows this: if 8 divides n, then of 8 consecutive indices from a
// multiple of 8 on all are below n or none, so the comparison has constancy 8. For every n its interval is 8: only at
// the end of the row are some of a group below n.
//
// Forward dataflow: facts start as unknown and are joined at control-flow merges (loop-carried values, results of if)
// until a fixed point. A scalar has the facts of a tile of one element.
//
// Assumptions: integers wrap, and the facts hold for wrapped values, because powers of two divide 2^64 and 2^32. Only
// signs, needed by divisions, and spans, used by cost estimates, assume that sums and products of indices do not
// overflow, and that parameters with a `multiple` are extents: not negative, and not 0 where they divide a value that
// matters.
#pragma once
#include "codegen/tile/tile.h"

namespace tessera::layout {

inline constexpr int64_t kMaxDivisor = int64_t{1} << 40;
// Largest power of two that divides v, up to kMaxDivisor.
int64_t power_of_two_in(int64_t v);

struct AxisInfo {
  // Per axis of the tile; one entry for a scalar.
  std::vector<int64_t> contiguity, constancy, divisibility, interval;
  // Per axis, v[x + 1] - v[x] if it is constant along the axis; the cost of strided accesses depends on it.
  std::vector<std::optional<int64_t>> stride;
  std::optional<int64_t> span; // largest difference of two elements of the tile: bounds the cache lines of an access
  std::optional<int64_t> constant; // the value of all elements
  bool non_negative = false;

  // A divisor of v[x] at all x that are multiples of `group` (a power of two) along `axis`.
  [[nodiscard]] int64_t divisor(int axis, int64_t group) const;
  // A divisor of every element.
  [[nodiscard]] int64_t divisor() const;
  // "contiguity [1, 8] constancy [4, 1] divisibility [8, 8] constant 3 non-negative"
  [[nodiscard]] std::string str() const;
  bool operator==(const AxisInfo&) const = default;
};

// By value id; pointers have empty facts. The kernel must have passed verify.
[[nodiscard]] std::vector<AxisInfo> axis_info(const tile::Kernel& kernel);

} // namespace tessera::layout
