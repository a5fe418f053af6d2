// Which numbers the integers of a kernel may be: what lets index arithmetic be done in 32 bits.
//
// One forward pass over intervals [least, most] from what a kernel says of itself: its constants and ranges, how many
// programs there are at most (config "programs"), signs of parameters. What does not fit an i64 may be any number, and
// so may what is loaded or carried by a loop. Of a tile the interval holds all elements, those that a mask leaves out
// as well.
//
//   %p = program_id 0            config(programs: 8192)     [0, 8191]
//   %b = mul(%p, 2048)                                      [0, 16775168]
//   %o = add(range 2048, %b)                                [0, 16777215]: fits 32 bits
//   %m = mod(%o, 128)                                       [0, 127]
#pragma once
#include "codegen/tile/tile.h"
#include <limits>

namespace tessera::layout {

struct Bounds {
  int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  [[nodiscard]] bool fits_32() const {
    return least >= std::numeric_limits<int32_t>::min() && most <= std::numeric_limits<int32_t>::max();
  }
  [[nodiscard]] bool non_negative() const { return least >= 0; }
  bool operator==(const Bounds&) const = default;
};

// By value id; only those of integer values mean something. The kernel must have passed verify.
[[nodiscard]] std::vector<Bounds> integer_bounds(const tile::Kernel& kernel);

} // namespace tessera::layout
