// BlockSpace: a domain with few axes, one for each way in which a block of threads walks.
//
// The idea. A tile of a block has two dimensions, and its program stands at one point of whatever is left. So the axes
// of a domain are put into three groups, each of which becomes one axis, its members one number:
//
//   points    a scalar per program
//   rows      dimension 0 of the tile
//   columns   dimension 1, along which most bytes are contiguous
//
// Where an expression sees members of a group as one (stride(a) == stride(b) * extent(b), as in Domain's collapse, but
// for this expression alone), it sees the new axis plainly; otherwise the member is taken out of it by division.
// Example: x[b, h, s, t] + mask[b, s, t] with everything in `columns`, c < b*h*s*t: x is read at c, the mask at
// floordiv(c, h*s*t)*s*t + mod(c, s*t): two divisions, not three, and s, t stay together.
#pragma once
#include "codegen/schedule/domain.h"
#include "codegen/schedule/schedule.h"
#include <span>

namespace tessera {

struct AxisGroups {
  std::vector<size_t> points, rows, columns; // positions in Domain::axes; row-major, the last one fastest
};
// Of a placement over a domain of `axes` axes: row-major within a group, but the contiguous axis last, along which
// neighbours in memory lie. Positions are those after split_axis is split.
[[nodiscard]] AxisGroups axis_groups(const Placement& placement, size_t axes, int contiguous_axis, uint64_t row_mask);
[[nodiscard]] uint64_t axis_bits(std::span<const size_t> axes);

struct BlockSpace {
  Domain domain;                         // offsets and deps over the new axes; at most three
  int point = -1, row = -1, column = -1; // positions in domain.axes, -1 for an empty group
};
// Each axis of the domain is in one group; a group holds reduced axes or others, not both.
[[nodiscard]] BlockSpace group_axes(const LoopNest& nest, Domain domain, const AxisGroups& groups);

// Replaces axis `axis` by two, quotient and remainder by `by`, which the domain's environment knows to divide the
// extent: positions axis and axis + 1.
void split_axis(const LoopNest& nest, Domain& domain, size_t axis, int64_t by);

} // namespace tessera
