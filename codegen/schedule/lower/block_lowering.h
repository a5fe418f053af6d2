// Lowering of one nest to blocks of threads, private to the folder.
//
// The idea. BlockSpace has at most three axes: a scalar point, and one along either dimension of the tile. Everything
// is emitted for the tile at once, and each value has the shape that its dependences ask for:
//
//   depends on        shape       example, layer norm of [rows, cols]
//   nothing           scalar      epsilon, sizes
//   rows              [R, 1]      mean, variance
//   columns           [1, C]      gamma, beta, the mask of the last columns
//   both              [R, C]      x, x - mean, the offsets of loads
//
// Where a dimension has one position the tile has one dimension, and values along the other one are scalars. Operations
// bring operands to a common shape (shapes.h), so that what is known once a row is computed once a row.
//
// Values are memoized. Without a loop a value that a later reduction needs again is simply there, in registers: one
// read of memory. With a loop over the row (rows longer than a tile) each round of reductions (stages.h, online.h) is a
// loop that reads memory again, through the L2; before a loop opens, what does not move with it is computed.
//
// The parts. All share a Context (block_context.h): the nest, its plan, the kernel, the sides of the tile, the values
// that are known. Each names the parts that it uses, those before it:
//
//   Shift, Placement          where the tile stands, and what is masked there
//   StagedOperands, Unrolled  operands by way of shared memory; results and taps that a thread writes out
//   Scalars                   values of the nest, loads and stores
//   Accumulators, Team        reductions of loops, and of programs that share a row
//   RoundTile, SharedRow, Walk, Window   the tiles of a row one after the other
#pragma once
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
  Team team_{c_, scalars_, accumulators_};
  RoundTile tile_{c_, shift_, placement_, scalars_, accumulators_};
  SharedRow share_{c_, shift_, placement_, scalars_, accumulators_, team_, tile_};
  Walk walk_{c_, shift_, placement_, accumulators_, team_, tile_, share_};
  Window window_{c_, unrolled_, scalars_};
};

} // namespace tessera::block
