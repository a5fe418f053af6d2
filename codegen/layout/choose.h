// Which layout suits a tile: what its accesses would like, and the blocked layout for an order and a width.
#pragma once
#include "codegen/layout/axis_info.h"
#include "codegen/layout/linear_layout.h"

namespace tessera::layout {

inline constexpr int kAccessBytes = 16; // the widest access of a thread

// A tile's Load, Store or AtomicAdd.
struct Access {
  tile::OpId op = -1;
  std::vector<int> shape; // of the offsets
  int element_bytes = 4;
  // Per axis, the largest number w (a power of two) such that every aligned group of w elements along the axis is one
  // access: neighbours in memory, aligned, w * element_bytes <= 16, one mask for all but few of the groups.
  std::vector<int> width;
  // Per axis, facts of the offsets, whatever alignment and mask allow.
  std::vector<int64_t> contiguity, constancy;
  std::vector<std::optional<int64_t>> stride;
  // Per axis, as width, of loads wherever the groups begin: neighbours in memory that lie in two aligned groups, both
  // of which may be read (assign.h, windows). 1 where they may not.
  std::vector<int> window;
  // Per axis, aligned groups of so many elements have one mask.
  std::vector<int64_t> same;
  // Shared memory: far apart elements are as near as neighbours.
  bool scratch = false;
  // How far apart any two offsets are at most.
  std::optional<int64_t> span = std::nullopt;

  // What an element costs when lanes run along `axis` and a thread takes `side` neighbours: how many lines of 128 bytes
  // a warp's instruction touches, and one more for the instruction, by elements moved. A contiguous f16 tile in
  // accesses of 8: 5 / 256; windows of 8: 10 / 256; element by element, 8 in a thread: 40 / 256; a column of a matrix:
  // 33 / 32, and elements of which nothing is known but that they all lie within a line 2 / 32.
  [[nodiscard]] double cost(int axis, int side) const;
  // The width of windows of which a thread with `side` neighbours along `axis` takes its elements: one access more than
  // there are windows. 0 where that is not less than half of the accesses that it saves.
  [[nodiscard]] int windows(int axis, int side) const;
  // Whether threads along `axis` would touch far apart elements while along some other one they would touch
  // neighbours; that axis, or -1.
  [[nodiscard]] int better_axis(int axis) const;
};
// `op` has a tile as offset.
[[nodiscard]] Access access_of(const tile::Kernel& kernel, tile::OpId op, const std::vector<AxisInfo>& info);

// Loads of neighbours that begin anywhere (assign.h). Where `width` is 0 there is none.
struct Window {
  int width = 0; // elements of a whole access
  int run = 0;   // neighbours that a thread holds, one window behind the other: registers [i * run, (i + 1) * run)
};

// What accesses of one shape, or of tiles that share a layout, agree on.
struct Preference {
  std::vector<int> order; // axes, fastest first
  int width = 1;          // elements of a thread side by side along order[0]
};
// The axis and width at which all accesses together cost least; of widths the largest one that costs little more, since
// fewer and larger accesses keep more bytes in flight: f16 beside f32 gives 8 elements, one access of the one and two
// of the other. An access that fares badly along an axis is priced as if it were converted. `widest` limits the width.
[[nodiscard]] Preference vote(const std::vector<int>& shape, const std::vector<Access>& accesses, int widest);

// The blocked layout for it. The width shrinks where threads would have nothing to do. Lanes are spread along
// order[0] first. Warps go to axes along which nothing is reduced, in order, and then to the others: a row's sum stays
// within one warp when there are rows enough, a column's within one thread.
[[nodiscard]] LinearLayout layout_for(const std::vector<int>& shape, const Preference& preference, int warps,
                                      const std::vector<bool>& reduced);

// Every warp has all of a tile with one axis, neighbours in neighbouring lanes.
[[nodiscard]] LinearLayout warp_layout(const std::vector<int>& shape, int warps);
// For a scan along `axis`: a thread holds a run of it, lanes runs side by side, then warps.
[[nodiscard]] LinearLayout scan_layout(const std::vector<int>& shape, int axis, int warps);
// Whether a layout will do for that.
[[nodiscard]] bool is_scannable(const LinearLayout& layout, int axis);

} // namespace tessera::layout
