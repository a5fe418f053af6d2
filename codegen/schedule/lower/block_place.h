// Coordinates of the tile's sides, and their masks, private to the folder.
#pragma once
#include "codegen/schedule/lower/block_shift.h"

namespace tessera::block {

class Placement final : Part {
public:
  Placement(Context& context, Shift& shift) : Part(context), shift_(shift) {}
  void place(Side& side, V base, bool masks);
  [[nodiscard]] bool always_whole(const Side& side) const;
  [[nodiscard]] bool stands_alone(const Side& side) const;
  V whole_block();

private:
  Shift& shift_;
};

} // namespace tessera::block
