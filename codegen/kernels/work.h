// How much a program of a tile kernel does, roughly.
#pragma once
#include "codegen/tile/tile.h"

namespace tessera {

// In elements of pointwise work: those of all tiles that a program computes, the products of a `dot` by themselves. A
// loop counts as often as it runs where constants say so, else kManyTrips times.
[[nodiscard]] int64_t work_of_program(const tile::Kernel& kernel);

} // namespace tessera
