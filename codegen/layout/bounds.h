// Value ranges of a kernel's integers, so that index arithmetic can use 32 bits.
//
// One forward pass over intervals [least, most] from facts of the kernel: constants and ranges, the largest number of
// programs (config "programs"), signs of parameters. A value that does not fit i64 has the full range, and so has a
// loaded or loop-carried value. The interval of a tile covers all elements, masked ones included.
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

// By value id; meaningful for integer values only. The kernel must have passed verify.
[[nodiscard]] std::vector<Bounds> integer_bounds(const tile::Kernel& kernel);

} // namespace tessera::layout
