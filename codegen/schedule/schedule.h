// Schedules: from a LoopNest to a tile kernel for one device. The nest says what, the schedule says in which order and
// blocks.
#pragma once
#include "codegen/target/target.h"
#include "codegen/tile/tile.h"
#include "fusion/loop_nest.h"
#include "runtime/executable.h"

namespace tessera {

enum class ScheduleKind : uint8_t {
  Flat,    // pointwise: outer axes flattened where accesses allow; the innermost contiguous one is the tile
  RowLoop, // a program takes rows; each stage between reductions is a loop over the row in tiles; dear values kept in
           // scratch
  ColumnLoop, // reduction over an axis that is not contiguous: the tile runs along a contiguous outer axis
  Tiled2D,    // pointwise with transposed operands: blocks of two axes, in which a line of each operand is used whole
  // On a GPU, where a program is a block of threads and its tile is held in registers:
  BlockFlat,    // pointwise: one tile a program
  BlockRows,    // whole rows in a tile, one read: reductions along it are of tiles
  BlockLoop,    // rows longer than a tile: each stage between reductions is a loop over the row
  BlockColumns, // reduction over an axis that is not contiguous: folds over the rows of a tile
  BlockTeam,    // rows, or columns, that several programs share: their partial results meet
  BlockWindow,  // folds of a few taps that neighbouring results share: a thread folds several results by itself
};
[[nodiscard]] std::string_view name(ScheduleKind kind);

struct Schedule {
  ScheduleKind kind = ScheduleKind::Flat;
  std::map<std::string, int64_t> config; // tile sizes, rows per program ...: what a tuner may vary
  std::string why;                       // for the report: "row of 768 f32 fits L1: exp kept in scratch"
  std::string measured; // what a tuner saw: "38.1 us -> 35.0 us on NVIDIA H200"; empty: chosen by the rules
};

// A tile kernel and how to launch it. Parameters: one pointer per buffer, one per workspace, one to the counters and
// one to the boxes if there are any, then one i64 per size.
struct ScheduledKernel {
  tile::Kernel kernel;
  Schedule schedule;
  std::vector<ValueId> buffers; // graph values, in parameter order
  std::vector<bool> buffer_written;
  // Per buffer, the read buffers whose memory a written one may take over: read only where the same program has yet to
  // write, with elements of the same size. Two outputs must not take the same one.
  std::vector<std::vector<int>> may_overwrite;
  std::vector<SymExpr> sizes; // i64 parameters after the buffers, as expressions over graph symbols
  std::vector<Workspace> workspaces;
  SymExpr counters = 0;     // i32 at which programs meet (tile/cooperation.h), at rest before and after a launch
  SymExpr boxes = 0;        // i32 through which they exchange numbers (tile/cooperation.h), 0 before and after a launch
  SymExpr team = 0;         // so many neighbouring programs wait for each other; 0: none do
  SymExpr grid;             // programs
  SymExpr work_per_program; // elements, for grain size
  SymExpr scratch_bytes;    // per program, 0 when none
  // Under which it may be launched: profit only, the last kernel of a nest has none. What they promise stands in the
  // kernel's parameters (multiple_of) and tiles (a row that fits).
  std::vector<SizeCondition> conditions;
  std::vector<std::string>
      report_sites; // ReportIndex site -> what to tell ("gather index out of range at node Gather_3")
};

// Schedule::config, what a tuner may vary:
//   axis            the axis that tiles run along, counted after collapsing (domain.h); -1 when there is none
//   cross           Tiled2D: the axis, counted likewise, that blocks are long along
//   square          Tiled2D: so many points of both axes are a tile, where they are left; 1: tiles of one axis
//   prefetch_points ColumnLoop: so many points ahead are prefetched where points lie far apart; 0: none
//   vector, unroll  lanes of the narrow tile, and how many of them make the full one; powers of two
//   program_bytes   what one program moves, roughly
//   prefetch_bytes  rows of at most so many bytes are prefetched while the one before is computed; 0: none
//   keep_in_output  1: values kept between rounds lie in an output's memory where there is one that fits; 0: in scratch
//   online          RowLoop: sums are folded together with what they are about (online.h), in chunks of so many
//                   elements, a multiple of the full tile; 0: in a round of their own
//   split           RowLoop, ColumnLoop: so many programs share a row, or columns, a power of two; results of
//                   reductions alone are stored
//   exact_division  1: x / s stays a division when s comes from the row's reductions (strict rounding); 0: x * (1 / s)
//
// Analytic choice, then lowering. A schedule without "axis" is chosen anew. Works for every verified nest; never fails
// for a shape. Errors: UnsupportedType for packed, complex and string elements, CodegenError for a schedule that does
// not fit the nest.
//
// On a GPU (device.kind) a nest has several kernels: for sizes with conditions, and last one for every size. Their
// buffers and may_overwrite agree. Of `wanted` only config "exact_division" counts. docs/schedules.md. Schedules of
// `tuned` (tuned.h) come first; one that does not fit the nest is passed over. There, config holds all numbers of a
// block's plan (block_config.h).
class TunedSchedules;
[[nodiscard]] Result<std::vector<ScheduledKernel>> lower_for_gpu(const Graph& graph, const LoopNest& nest,
                                                                 const Target& device, const std::string& name,
                                                                 const Schedule& wanted = {},
                                                                 const TunedSchedules* tuned = nullptr);
[[nodiscard]] Schedule choose_schedule(const Graph& graph, const LoopNest& nest, const Target& device);
[[nodiscard]] Result<ScheduledKernel> lower_to_tiles(const Graph& graph, const LoopNest& nest, const Schedule& schedule,
                                                     const Target& device, const std::string& name);

} // namespace tessera
