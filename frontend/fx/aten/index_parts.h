// The list of indices of index.Tensor and index_put: positions in some dimensions of a tensor, all of one shape.
#pragma once
#include "frontend/fx/view_parts.h"

namespace tessera::fx {

struct Picked {
  std::vector<ValueId> index; // i32 or i64; they broadcast to `shape`
  Ints axes;                  // the dimension that each of them is of, ascending
  Ints rest;                  // the other dimensions
  SymShape shape;
  int64_t first = 0;    // dimensions of `rest` before those of `shape` in the result
  bool adjacent = true; // no dimension lies between two of `axes`; else the result begins with `shape`

  // Permutation of the tensor that brings `axes` to the front.
  [[nodiscard]] Ints front() const;
  // Permutation from [shape, rest] to the order of the result.
  [[nodiscard]] Ints from_front() const;
  // [shape, number of axes]: the positions side by side.
  [[nodiscard]] ValueId tuples(ops::B& b) const;
};
// From an argument that is a list; a mask is the positions of its elements that hold.
[[nodiscard]] Picked picked(Call& c, ValueId x, std::string_view name);
[[nodiscard]] ValueId taken(ops::B& b, ValueId x, const Picked& p);
// Positions that lie outside become the nearest ones inside.
void clamp_positions(ops::B& b, ValueId x, Picked& p);
// Elements of x along an axis at positions, of which negative ones are an error: PyTorch counts from the end in
// index, index_put, index_fill, take and put alone.
[[nodiscard]] ValueId selected(ops::B& b, ValueId x, ValueId index, int64_t axis);
// Positions as i32 or i64.
[[nodiscard]] ValueId as_index(ops::B& b, ValueId x);

} // namespace tessera::fx
