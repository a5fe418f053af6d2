// Chooses the layout of a tile: the preference of each access, and the blocked layout for an order and a width.
#pragma once
#include "codegen/layout/axis_info.h"
#include "codegen/layout/linear_layout.h"

namespace tessera::layout {

inline constexpr int kAccessBytes = 16; // the widest access of a thread

// A Load, Store or Atomic of a tile.
struct Access {
  tile::OpId op = -1;
  std::vector<int> shape; // of the offset tile
  int element_bytes = 4;
  // Per axis, the largest power of two w such that every aligned group of w elements along the axis is one access:
  // contiguous in memory, aligned, w * element_bytes <= 16, one mask for all but few of the groups.
  std::vector<int> width;
  // Per axis, facts of the offsets, regardless of alignment and mask.
  std::vector<int64_t> contiguity, constancy;
  std::vector<std::optional<int64_t>> stride;
  // Per axis, the same for unaligned loads: contiguous elements that lie in two aligned groups, both of which may be
  // read (assign.h, windows). 1 if they may not.
  std::vector<int> window;
  // Per axis, the size of aligned groups of elements with one mask.
  std::vector<int64_t> same;
  // True for scratch in shared memory, where the distance of elements does not matter.
  bool scratch = false;
  // Largest difference of two offsets.
  std::optional<int64_t> span = std::nullopt;

  // Cost per element if lanes run along `axis` and a thread takes `side` contiguous elements: lines of 128 bytes that
  // an instruction of a warp accesses, plus one for the instruction, divided by the elements moved. A contiguous f16
  // tile in accesses of 8: 5 / 256; windows of 8: 10 / 256; element by element, 8 per thread: 40 / 256; a column of a
  // matrix: 33 / 32; unknown elements within one line: 2 / 32.
  [[nodiscard]] double cost(int axis, int side) const;
  // The width of windows with which a thread loads `side` contiguous elements along `axis`: one access more than there
  // are windows. 0 if that is not less than half of the accesses that it saves.
  [[nodiscard]] int windows(int axis, int side) const;
  // The other axis along which adjacent threads access adjacent elements, if along `axis` they do not; else -1.
  [[nodiscard]] int better_axis(int axis) const;
};
// The offset of `op` must be a tile.
[[nodiscard]] Access access_of(const tile::Kernel& kernel, tile::OpId op, const std::vector<AxisInfo>& info);

// Unaligned loads (assign.h). `width` 0: none.
struct Window {
  int width = 0; // elements of an aligned access
  int run = 0;   // contiguous elements of a thread, in consecutive windows: registers [i * run, (i + 1) * run)
};

// The common preference of accesses of one shape, or of tiles that share a layout.
struct Preference {
  std::vector<int> order; // axes, fastest first
  int width = 1;          // contiguous elements of a thread along order[0]
};
// The axis and width with the least total cost of all accesses. Of widths, the largest one that costs little more,
// because fewer and larger accesses keep more bytes in flight: f16 together with f32 gives 8 elements, one access of
// f16 and two of f32. An access that is expensive along an axis is priced as if converted. `widest` limits the width.
[[nodiscard]] Preference vote(const std::vector<int>& shape, const std::vector<Access>& accesses, int widest);

// The blocked layout for a preference. The width shrinks if threads would be idle. Lanes are spread along order[0]
// first. Warps go to axes that are not reduced, in order, then to the others: a row's sum stays within one warp if
// there are enough rows, a column's within one thread.
[[nodiscard]] LinearLayout layout_for(const std::vector<int>& shape, const Preference& preference, int warps,
                                      const std::vector<bool>& reduced);

// The layout of a tile with one axis: every warp holds all elements, adjacent lanes hold adjacent elements.
[[nodiscard]] LinearLayout warp_layout(const std::vector<int>& shape, int warps);
// The layout of a scan along `axis`: a thread holds a contiguous segment, lanes hold consecutive segments, then warps.
[[nodiscard]] LinearLayout scan_layout(const std::vector<int>& shape, int axis, int warps);
// True if a layout has this form.
[[nodiscard]] bool is_scannable(const LinearLayout& layout, int axis);

} // namespace tessera::layout
