// Lowering of one nest, private to the folder.
//
// The idea. A program is a nest of scopes: the program itself, a loop over outer points, a tile of the tile axis, a
// round of the loop over the row. Binding an axis opens a scope. A value is emitted in the scope where it is first
// asked for and is forgotten when that scope ends; before a loop opens, hoist() asks for everything that does not
// depend on what the loop binds. So each value stands as far out as its axes allow, and no later pass has to prove that
// a load may move.
//
//   Flat        outer points x tiles of an outer axis: values, then stores
//   Tiled2D     the same, a block at a time: narrow along the tiles' axis, long along another one, the innermost loop;
//               in squares of both, tiles [n, n], where vectors are as long as those
//   RowLoop     outer points x rounds (stages.h) x tiles along the last loop over the row; folds end in scalars
//   ColumnLoop  outer points x tiles of an outer axis x rounds x single row points; folds are tiles
// Rows that no cache holds are folded chunk by chunk (row_online.cpp); few rows and columns are programs' in parts,
// whose states the last one to arrive merges (row_split.cpp). A range is walked in up to three phases: steps of the
// full tile, of one vector, and one masked vector for the rest, so that no access but the last is masked.
//
// The parts share a Context (loop_context.h), and each names the parts that it uses, those before it: Scalars (values,
// loads and stores), Folding, Prefetches, Walk (phases of a range), OnlineRows, Rounds, SplitRows.
#pragma once
#include "codegen/schedule/lower/row_rounds.h"

namespace tessera {

// Whether the blocks of a Tiled2D schedule may be walked in squares.
[[nodiscard]] bool squares_fit(const LoopNest& nest, const Domain& domain);

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
  [[nodiscard]] uint64_t outer_axes() const;             // of a flattened outer point
  [[nodiscard]] bool in_squares(const Axis& axis) const; // nothing is left behind the last one
  void overwritable();

  Scalars scalars_{c_};
  Folding folding_{c_, scalars_};
  Prefetches prefetches_{c_};
  Walk walk_{c_};
  OnlineRows online_rows_{c_, scalars_, folding_, prefetches_, walk_};
  Rounds rounds_{c_, scalars_, folding_, prefetches_, walk_, online_rows_};
  SplitRows split_{c_, scalars_, folding_, walk_, online_rows_, rounds_};
  SymExpr columns_, middle_rows_, points_; // per program
  SymExpr column_blocks_, middle_blocks_, point_blocks_;
};

} // namespace loops
} // namespace tessera
