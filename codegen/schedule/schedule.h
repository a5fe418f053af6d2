// Schedules: from a LoopNest to a tile kernel for one device. The nest says what, the schedule says in which order and blocks.
#pragma once
#include "codegen/tile/tile.h"
#include "fusion/loop_nest.h"

namespace tessera {

// What schedules need to know of a device.
struct DeviceTraits {
  std::string name;          // "cpu avx512"
  int vector_bytes = 64;     // natural vector of one program's step
  int unroll = 4;            // vectors per step that hide latency
  int threads = 1;           // programs that run at a time
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20; // per core
};

enum class ScheduleKind : uint8_t {
  Flat,       // pointwise: outer axes flattened where accesses allow; the innermost contiguous one is the tile
  RowLoop,    // a program takes rows; each stage between reductions is a loop over the row in tiles; dear values kept in scratch
  ColumnLoop, // reduction over an axis that is not contiguous: the tile runs along a contiguous outer axis
  Tiled2D,    // two axes in a tile: transposed operands
};
[[nodiscard]] std::string_view name(ScheduleKind kind);

struct Schedule {
  ScheduleKind kind = ScheduleKind::Flat;
  std::map<std::string, int64_t> config; // tile sizes, rows per program ...: what a tuner may vary
  std::string why;                       // for the report: "row of 768 f32 fits L1: exp kept in scratch"
};

// A tile kernel and how to launch it. Parameters: one pointer per buffer, then one i64 per size.
struct ScheduledKernel {
  tile::Kernel kernel;
  Schedule schedule;
  std::vector<ValueId> buffers;          // graph values, in parameter order
  std::vector<bool> buffer_written;
  // Per buffer, the read buffers whose memory a written one may take over: read only where the same program has yet to write,
  // with elements of the same size. Two outputs must not take the same one.
  std::vector<std::vector<int>> may_overwrite;
  std::vector<SymExpr> sizes;            // i64 parameters after the buffers, as expressions over graph symbols
  SymExpr grid;                          // programs
  SymExpr work_per_program;              // elements, for grain size
  SymExpr scratch_bytes;                 // per program, 0 when none
  std::vector<std::string> report_sites; // ReportIndex site -> what to tell ("gather index out of range at node Gather_3")
};

// Schedule::config, what a tuner may vary:
//   axis            the axis that tiles run along, counted after collapsing (domain.h); -1 when there is none
//   vector, unroll  lanes of the narrow tile, and how many of them make the full one; powers of two
//   program_bytes   what one program moves, roughly
//   exact_division  1: x / s stays a division when s comes from the row's reductions (strict rounding); 0: x * (1 / s)
//
// Analytic choice, then lowering. A schedule without "axis" is chosen anew. Works for every verified nest; never fails for a shape. Errors:
// UnsupportedType for packed, complex and string elements, CodegenError for a schedule that does not fit the nest.
[[nodiscard]] Schedule choose_schedule(const Graph& graph, const LoopNest& nest, const DeviceTraits& device);
[[nodiscard]] Result<ScheduledKernel> lower_to_tiles(const Graph& graph, const LoopNest& nest, const Schedule& schedule,
                                                     const DeviceTraits& device, const std::string& name);

} // namespace tessera
