// Coordinates of the tile's sides, and their masks, private to the folder.
#pragma once
#include "codegen/schedule/lower/block_shift.h"

namespace tessera::block {

class Placement final : Part {
public:
  Placement(Context& context, Shift& shift) : Part(context), shift_(shift) {}
  // Where the side is a box, its blocks say where it lies, and not `base`.
  void place(Side& side, V base, bool masks);
  // The mask of a placed side's positions within the extents, along these of its axes, whether or not it is always true;
  // -1 without any.
  V bounds(const Side& side, uint64_t axes);
  // Tiles along a side, by all of its axes.
  [[nodiscard]] SymExpr blocks(const Side& side) const;
  [[nodiscard]] bool always_whole(const Side& side) const;
  [[nodiscard]] bool stands_alone(const Side& side) const;
  V whole_block();

private:
  void place_box(Side& side, bool masks);

  Shift& shift_;
};

} // namespace tessera::block
