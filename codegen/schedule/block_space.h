// BlockSpace: a domain with few axes, one per role in a block of threads.
//
// A tile of a block has two dimensions, and its program has one index along all other axes. So the axes of a domain are
// put into three groups. Each group becomes one axis, and its members are flattened into one index:
//
//   points    a scalar per program
//   rows      dimension 0 of the tile
//   columns   dimension 1, along which most bytes are contiguous
//
// A contraction has tiles of two factors as well, whose second dimension is reduced:
//
//   depth     the dimension that both factors have
//   steps     reduced axes of which a tile has one position, such as the taps of a convolution
//
// Rows may be a box instead: each member stays an axis, with its own extent of the tile.
//
// If an expression depends on members of a group only through their flattened index (stride(a) == stride(b) *
// extent(b), as in Domain's collapse, but for this expression alone), it uses the new axis directly; otherwise the
// member is computed from the index by division. Example: x[b, h, s, t] + mask[b, s, t] with all axes in `columns`, c <
// b*h*s*t: x is read at c, the mask at floordiv(c, h*s*t)*s*t + mod(c, s*t): two divisions, not three, and s, t stay
// together.
#pragma once
#include "codegen/schedule/domain.h"
#include "codegen/schedule/schedule.h"
#include <span>

namespace tessera {

struct AxisGroups {
  std::vector<size_t> points, rows, columns; // positions in Domain::axes; row-major, the last one fastest
  std::vector<size_t> depth, steps;          // of a contraction
  std::vector<int> box; // extents of the tile along `rows`, powers of two; empty: they are flattened
  [[nodiscard]] size_t members() const {
    return points.size() + rows.size() + columns.size() + depth.size() + steps.size();
  }
};
// The groups of a placement over a domain of `axes` axes: row-major within a group, but with the contiguous axis last
// where they are flattened.
// Indices are those after split_axis is split.
[[nodiscard]] AxisGroups axis_groups(const Placement& placement, size_t axes, int contiguous_axis, uint64_t row_mask);
[[nodiscard]] uint64_t axis_bits(std::span<const size_t> axes);

struct BlockSpace {
  struct BoxAxis {
    int axis = -1, lanes = 1; // position in domain.axes, extent of the tile
  };
  Domain domain;                         // offsets and deps over the new axes; one for each group
  int point = -1, row = -1, column = -1; // positions in domain.axes, -1 for an empty group
  int depth = -1, step = -1;
  std::vector<BoxAxis> box;                 // of rows that are one, with `row` the last of them; else empty
  [[nodiscard]] uint64_t row_bits() const { // as bits of positions in domain.axes
    uint64_t bits = row < 0 ? 0 : uint64_t{1} << row;
    for (const BoxAxis& a : box) bits |= uint64_t{1} << a.axis;
    return bits;
  }
};
// Each axis of the domain must be in one group; a group has reduced axes or others, not both.
[[nodiscard]] BlockSpace group_axes(const LoopNest& nest, Domain domain, const AxisGroups& groups);

// Replaces axis `axis` by quotient and remainder of a division by `by`, which must divide the extent in the domain's
// environment: axes `axis` and `axis` + 1.
void split_axis(const LoopNest& nest, Domain& domain, size_t axis, int64_t by);

} // namespace tessera
