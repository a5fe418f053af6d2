// Pointwise operations on tiles of one rank whose shapes differ in dimensions of 1: the tile IR asks for broadcasts to
// be spelled out, so that [R, 1] + [1, C] is add(broadcast [R, C], broadcast [R, C]).
#pragma once
#include "codegen/tile/tile.h"

namespace tessera {

// The shape that all of them, scalars apart, can be broadcast to; empty when all are scalars.
[[nodiscard]] std::vector<int> common_shape(const tile::Kernel& kernel, std::span<const tile::ValueId> values);
// b.scalar() of the operands, tiles brought to their common shape first.
tile::ValueId pointwise(tile::Builder& b, ScalarOp op, std::span<const tile::ValueId> args);
// x and y, masks of which -1 is true.
tile::ValueId conjunction(tile::Builder& b, tile::ValueId x, tile::ValueId y);

} // namespace tessera
