// Lowering of one nest to blocks of threads, private to the folder.
//
// BlockSpace has at most three axes: a scalar point, and one along either dimension of the tile. Code is emitted for
// the whole tile, and each value has the shape of the axes on which it depends:
//
//   depends on        shape       example, layer norm of [rows, cols]
//   nothing           scalar      epsilon, sizes
//   rows              [R, 1]      mean, variance
//   columns           [1, C]      gamma, beta, the mask of the last columns
//   both              [R, C]      x, x - mean, the offsets of loads
//
// If a dimension has extent 1, the tile has one dimension, and values along the other are scalars. Operations broadcast
// operands to a common shape (shapes.h), so a value per row is computed once per row.
//
// Values are memoised. Without a loop, a value that a later reduction needs again is still in registers: one read of
// memory. With a loop over the row (rows longer than a tile), each stage of reductions (stages.h, online.h) is a loop
// that reads memory again, through the L2; values that do not depend on the loop are computed before it.
//
// The parts share a Context (block_context.h): nest, schedule, kernel, sides of the tile, known values. Each part uses
// parts listed before it:
//
//   Shift, Placement          coordinates of the tile, and masks
//   StagedOperands, Unrolled  operands through shared memory; unrolled results and taps of a thread
//   Scalars                   values of the nest, loads and stores
//   Accumulators, Cooperation reductions of loops, and of cooperative blocks
//   RoundTile, SharedRow, RowLoop, Window   loops over the tiles of a row
//   Product                   the loop of a contraction
#pragma once
#include "codegen/schedule/lower/block_contraction.h"
#include "codegen/schedule/lower/block_walk.h"

namespace tessera::block {

class BlockLowering final : Part {
public:
  // `window`: of a plan with taps.
  BlockLowering(Context& context, std::optional<WindowAxes> window)
      : Part(context), unrolled_(context, std::move(window)) {}
  ScheduledKernel run();

private:
  void parameters();
  void program();
  void tile(V number, const std::vector<std::pair<Side*, SymExpr>>& parts, bool points);
  void in_turns();
  void body(bool whole);
  void rounds();
  void finish_sizes();
  void overwritable();

  Shift shift_{c_};
  Placement placement_{c_, shift_};
  StagedOperands staged_{c_, shift_};
  Unrolled unrolled_;
  Scalars scalars_{c_, shift_, unrolled_, staged_};
  Accumulators accumulators_{c_, scalars_};
  Cooperation cooperation_{c_, scalars_, accumulators_};
  RoundTile tile_{c_, shift_, placement_, scalars_, accumulators_};
  SharedRow share_{c_, shift_, placement_, scalars_, accumulators_, cooperation_, tile_};
  RowLoop row_loop_{c_, shift_, placement_, accumulators_, cooperation_, tile_, share_};
  Window window_{c_, unrolled_, scalars_};
  Product product_{c_, placement_, scalars_};
  V rank_ = -1; // of the program in its cluster, if there are clusters
};

} // namespace tessera::block
