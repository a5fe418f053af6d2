// Sizes at which schedules are compared: those that are known or were seen, and typical ones of a range. Private to the
// folder.
#pragma once
#include "codegen/schedule/legal.h"

namespace tessera {

inline constexpr double kTypicalPoints = 8 << 20; // of a nest whose outer sizes are not known

// Sizes that stand for a range of them.
struct Cell {
  CallSizes sizes;                  // of every symbol
  std::vector<ExtentRange> extents; // by axis: where they stand for others
  // The symbols of a cell of few points that are as small as they can be, and as which more points may come. Empty: of
  // many points.
  std::vector<uint64_t> grow;
};
struct Cells {
  std::vector<Cell> list; // not empty, but where no size is possible
  bool seen = false;      // every size is known, or was seen by the call that leads to this compilation: the first cell
};
[[nodiscard]] Cells typical_cells(const BlockFacts& facts);

} // namespace tessera
