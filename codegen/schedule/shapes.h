// Pointwise operations on tiles of one rank whose shapes differ in dimensions of 1. The tile IR requires explicit
// broadcasts: [R, 1] + [1, C] is add(broadcast [R, C], broadcast [R, C]).
#pragma once
#include "codegen/tile/tile.h"

namespace tessera {

// The common shape after broadcasting; empty if all are scalars.
[[nodiscard]] std::vector<int> common_shape(const tile::Kernel& kernel, std::span<const tile::ValueId> values);
// b.scalar() of the operands after broadcasting tiles to their common shape.
tile::ValueId pointwise(tile::Builder& b, ScalarOp op, std::span<const tile::ValueId> args);
// x and y; a mask of -1 is true.
tile::ValueId conjunction(tile::Builder& b, tile::ValueId x, tile::ValueId y);

} // namespace tessera
