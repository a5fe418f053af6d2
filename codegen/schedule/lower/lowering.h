// Lowering of one nest to loops, private to the folder.
//
// A program is a nest of scopes: the program itself, a loop over outer points, a tile of the tile axis, an iteration of
// the loop over the row. Binding an axis opens a scope. A value is emitted in the scope of its first use and is dropped
// when that scope ends; before a loop opens, hoist() emits the values that do not depend on the axis of the loop. So
// each value is computed in the outermost scope that its axes allow, and no later pass has to move loads.
//
//   Flat        outer points x tiles of an outer axis: values, then stores
//   Tiled2D     the same per block: narrow along the axis of tiles, long along another axis, which is the innermost
//               loop; in squares of both axes, tiles [n, n], if vectors are as long as those
//   RowLoop     outer points x stages (stages.h) x tiles along the last loop over the row; reductions yield scalars
//   ColumnLoop  outer points x tiles of an outer axis x stages x single row points; reductions yield tiles
//
// Rows larger than the caches are folded chunk by chunk (row_online.cpp). Few rows or columns are divided among
// programs; the last one to arrive combines their states (row_split.cpp). A range is traversed in up to three phases:
// steps of the full tile, of one vector, and one masked vector for the rest, so that only the last access is masked.
//
// The parts share a Context (loop_context.h). Each part uses parts before it: Scalars (values, loads and stores),
// Folding, Prefetches, RowLoop (phases of a range), OnlineRows, Rounds, SplitRows.
#pragma once
#include "codegen/schedule/lower/row_rounds.h"

namespace tessera {

namespace loops {

class Lowering final : Part {
public:
  explicit Lowering(Context& context) : Part(context) {}
  ScheduledKernel run();

private:
  void program();
  void program_sizes();
  void outer_points(V block);
  void decode(V point);
  void inner(V column_block);
  [[nodiscard]] Range tile_range(V column_block);
  V squares(V column_block, V from, V to);
  [[nodiscard]] uint64_t outer_axes() const;             // axes of a flattened outer point
  [[nodiscard]] bool in_squares(const Axis& axis) const; // squares cover the axis without remainder
  void overwritable();

  Scalars scalars_{c_};
  Folding folding_{c_, scalars_};
  Prefetches prefetches_{c_};
  RowLoop row_loop_{c_};
  OnlineRows online_rows_{c_, scalars_, folding_, prefetches_, row_loop_};
  Rounds rounds_{c_, scalars_, folding_, prefetches_, row_loop_, online_rows_};
  SplitRows split_{c_, scalars_, folding_, row_loop_, online_rows_, rounds_};
  SymExpr columns_, middle_rows_, points_; // per program
  SymExpr column_blocks_, middle_blocks_, point_blocks_;
};

} // namespace loops
} // namespace tessera
