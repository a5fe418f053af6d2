// Schedules: from a LoopNest to a tile kernel for one device. The nest says what, the schedule says in which order and
// blocks. Schedule is the one type for hosts and GPUs, for what is enumerated, chosen, measured, recorded and lowered.
#pragma once
#include "codegen/target/target.h"
#include "codegen/tile/tile.h"
#include "fusion/loop_nest.h"
#include "runtime/executable.h"
#include <compare>
#include <span>

namespace tessera {

enum class ScheduleKind : uint8_t {
  Flat,    // pointwise: outer axes flattened where accesses allow; the innermost contiguous one is the tile
  RowLoop, // a program takes rows; each stage between reductions is a loop over the row in tiles; expensive values are
           // cached in scratch
  ColumnLoop, // reduction over an axis that is not contiguous: the tile runs along a contiguous outer axis
  Tiled2D,    // pointwise with transposed operands: blocks of two axes, in which a line of each operand is used whole
  // On a GPU, where a program is a block of threads and its tile is held in registers:
  BlockFlat,        // pointwise: one tile a program
  BlockRows,        // whole rows in a tile, one read: reductions along it are of tiles
  BlockLoop,        // rows longer than a tile: each stage between reductions is a loop over the row
  BlockColumns,     // reduction over an axis that is not contiguous: folds over the rows of a tile
  BlockCooperative, // cooperative blocks: several share a row, or columns, and combine their partial results
  BlockWindow,      // folds of a few taps that neighbouring results share: a thread folds several results by itself
  BlockContraction, // sums of products of two factors (contraction.h): tiles of both, multiplied by tensor cores
};
[[nodiscard]] std::string_view name(ScheduleKind kind);
[[nodiscard]] std::optional<ScheduleKind> schedule_kind(std::string_view name);

// The fields of a schedule by group: type, name, default. These lists are the only ones: printing, parsing, records and
// comparison derive from them. A new dimension of the space of schedules is a line here, and what enumerates and lowers
// it. Axes are positions in Domain::axes (domain.h), sets of axes are bits, of the axes after split_axis is split.
//
// "Host" and "GPU" name the lowering that reads a field; others keep their defaults.
#define TESSERA_SCHEDULE_PLACEMENT(X)                                                                                  \
  X(int, axis, -1)              /* host: axis along which tiles run; -1: a single point */                             \
  X(int, cross_axis, -1)        /* host, Tiled2D: axis along which blocks are long */                                  \
  X(uint64_t, row_axes, 0)      /* GPU: axes along dimension 0 of the tile; an axis in neither set is the grid's */    \
  X(uint64_t, column_axes, 0)   /* GPU: axes along dimension 1 */                                                      \
  X(uint64_t, depth_axes, 0)    /* GPU, BlockContraction: reduced axes along the depth of both factors' tiles */       \
  X(uint64_t, row_box, 0)       /* GPU, BlockContraction: extents of the tile along row_axes, as logarithms of 4 */    \
                                /* bits each, the last axis lowest; 0: the axes are flattened */                       \
  X(int, split_axis, -1)        /* GPU: axis that is split into vectors of `columns` elements first; -1: none */       \
  X(int, window_axis, -1)       /* GPU, BlockWindow: axis along which a thread computes `outputs` results */           \
  X(int, outer_window_axis, -1) /* GPU, BlockWindow: likewise `outer_outputs`; -1: none */                             \
  X(bool, rows_fastest, false)  /* GPU: consecutive blocks are neighbours along the tile's rows, not its columns */
#define TESSERA_SCHEDULE_TILE(X)                                                                                       \
  X(int, vector, 1)        /* host: lanes of the narrow tile, a power of two */                                        \
  X(int, unroll, 1)        /* host: narrow tiles in the full one, a power of two */                                    \
  X(int, square, 1)        /* host, Tiled2D: indices of both axes in a tile; 1: tiles of one axis */                   \
  X(int, rows, 1)          /* GPU: extent of dimension 0, a power of two; 1: none */                                   \
  X(int, columns, 1)       /* GPU: extent of dimension 1, likewise */                                                  \
  X(int, warps, 4)         /* GPU: of a block, a power of two */                                                       \
  X(int, contiguous, 1)    /* GPU: neighbouring elements that one thread has, a power of two */                        \
  X(int, outputs, 1)       /* GPU, BlockWindow: consecutive results of a thread along window_axis */                   \
  X(int, outer_outputs, 1) /* GPU, BlockWindow: and along outer_window_axis */                                         \
  X(int, taps, 0)          /* GPU, BlockWindow: taps without a loop; the outermost row axis has a loop for the rest */ \
  X(int, depth, 1)         /* GPU, BlockContraction: extent of the factors' tiles along depth_axes, a power of two */
#define TESSERA_SCHEDULE_TRAVERSAL(X)                                                                                  \
  X(bool, loop, false)                /* GPU: each stage loops over tiles of the row; else the tile holds it whole */  \
  X(int, rows_in_flight, 1)           /* GPU: tiles of rows that a block computes in turn, all loads in flight */      \
  X(int, num_stages, 1)               /* GPU: tiles in flight or computed by software pipelining; 1: none ahead */     \
  X(int, group_rows, 1)               /* GPU, BlockContraction: tiles of rows whose blocks follow each other */        \
  X(bool, serpentine, true)           /* GPU: every second loop of one stage goes from the last tile to the first */   \
  X(int, fold_steps, 1)               /* GPU: segments of `contiguous` elements a thread folds before accumulators */  \
  X(bool, online, false)              /* of loops: sums are folded with the reductions they depend on (online.h) */    \
  X(int64_t, chunk, 0)                /* host, online: elements folded at a time, a multiple of the full tile */       \
  X(bool, unmasked_branch, false)     /* GPU: tiles within the iteration space take a branch without masks */          \
  X(int64_t, program_bytes, 64 << 10) /* host: bytes that a program moves, about */                                    \
  X(int64_t, prefetch_bytes, 0)       /* host: rows up to this size are prefetched during the one before; 0: none */   \
  X(int, prefetch_points, 0)          /* host, ColumnLoop: indices that distant ones are prefetched ahead; 0: none */
#define TESSERA_SCHEDULE_RESIDENCY(X)                                                                                  \
  X(int, cached_tiles, 0)         /* GPU: tiles of a block's row that stay in shared memory between stages */          \
  X(bool, async_copy, false)      /* GPU: they are copied there asynchronously, all copies in flight */                \
  X(bool, cache_in_output, false) /* host: values between stages lie in an output where one fits, else in scratch */
#define TESSERA_SCHEDULE_COOPERATION(X)                                                                                \
  X(int, max_blocks, 0) /* GPU: blocks of the grid. BlockCooperative, 0, of rows: as many as hold a row. */            \
                        /* BlockContraction: they take the tiles in turn; 0: one each */                               \
  X(int64_t, max_blocks_per_row, 1) /* GPU, BlockCooperative: bound where the number is not a constant */              \
  X(int, split_k, 1)                /* GPU, BlockContraction: blocks that share a tile, each a segment of the depth */ \
  X(int, cluster, 1)          /* GPU, BlockContraction: blocks of a cluster, neighbours along the tile's rows, */      \
                              /* which share the tile of the columns' factor */                                        \
  X(int, programs_per_row, 1) /* host: programs that share a row, or columns, a power of two */
#define TESSERA_SCHEDULE_ACCESS(X)                                                                                     \
  X(tile::Caching, load_hint, tile::Caching::Normal) /* GPU: of inputs as large as the iteration space */              \
  X(bool, streaming_stores, false)                   /* GPU: results are evicted first */                              \
  X(int, alignment_peel, 1) /* GPU: tiles of misaligned rows begin at a multiple of this, elements; 1: at the row */   \
  X(bool, staged, false)    /* GPU: operands along the tile's rows pass through shared memory */                       \
  X(int, min_blocks, 0)     /* GPU: blocks to be resident on a multiprocessor, bounds registers; 0: any */
#define TESSERA_SCHEDULE_GROUPS(G)                                                                                     \
  G(placement, Placement, TESSERA_SCHEDULE_PLACEMENT)                                                                  \
  G(tile, TileShape, TESSERA_SCHEDULE_TILE)                                                                            \
  G(traversal, Traversal, TESSERA_SCHEDULE_TRAVERSAL)                                                                  \
  G(residency, Residency, TESSERA_SCHEDULE_RESIDENCY)                                                                  \
  G(cooperation, Cooperation, TESSERA_SCHEDULE_COOPERATION)                                                            \
  G(access, AccessHints, TESSERA_SCHEDULE_ACCESS)

#define TESSERA_FIELD(type, name, value) type name = value;
#define TESSERA_GROUP(group, Type, FIELDS)                                                                             \
  struct Type {                                                                                                        \
    FIELDS(TESSERA_FIELD)                                                                                              \
    auto operator<=>(const Type&) const = default;                                                                     \
  };
TESSERA_SCHEDULE_GROUPS(TESSERA_GROUP)
#undef TESSERA_GROUP
#undef TESSERA_FIELD

// A plain value. What follows from a schedule and a nest (size conditions, blocks per row, barriers) is Legal's
// (legal.h).
struct Schedule {
  ScheduleKind kind = ScheduleKind::Flat;
#define TESSERA_GROUP(group, Type, FIELDS) Type group;
  TESSERA_SCHEDULE_GROUPS(TESSERA_GROUP)
#undef TESSERA_GROUP
  auto operator<=>(const Schedule&) const = default;
};

// The logarithm of the extent of a box (Placement::row_box) along the axis that has `inner` axes behind it.
inline constexpr size_t kBoxBits = 4;
[[nodiscard]] constexpr int box_bits(uint64_t box, size_t inner) {
  return inner < 64 / kBoxBits ? static_cast<int>(box >> (kBoxBits * inner) & ((1U << kBoxBits) - 1)) : 0;
}

// Calls f(name, field) for each field.
template <class S, class F>
void each_field(S& schedule, F&& f) {
#define TESSERA_FIELD(type, name, value) f(#name, group.name);
#define TESSERA_GROUP(member, Type, FIELDS)                                                                            \
  {                                                                                                                    \
    auto& group = schedule.member;                                                                                     \
    FIELDS(TESSERA_FIELD)                                                                                              \
  }
  TESSERA_SCHEDULE_GROUPS(TESSERA_GROUP)
#undef TESSERA_GROUP
#undef TESSERA_FIELD
}

// The fields that differ from their defaults.
using ScheduleFields = std::map<std::string, int64_t>;
[[nodiscard]] ScheduleFields fields(const Schedule& schedule);
// A schedule of such fields; the others have their defaults. Error Usage: an unknown kind or field, a value that its type
// does not have.
[[nodiscard]] Result<Schedule> make_schedule(std::string_view kind, const ScheduleFields& fields);
[[nodiscard]] Status set_field(Schedule& schedule, std::string_view name, int64_t value);
// "block-rows columns=4096 column_axes=2": the kind, and fields that differ from their defaults; and back.
[[nodiscard]] std::string print(const Schedule& schedule);
[[nodiscard]] Result<Schedule> parse_schedule(std::string_view text);

// Extents of one axis.
struct ExtentRange {
  int64_t min = 0, max = INT64_MAX, multiple_of = 1;
  bool operator==(const ExtentRange&) const = default;
};

// Predicted time of a launch, in microseconds, with its terms (cost.h). Without terms: it is not predicted.
struct PredictedTime {
  double us = 0;
  std::vector<std::pair<std::string, double>> terms; // name, microseconds
  [[nodiscard]] std::string bound() const;           // name of the greatest term; empty without terms
};

// A tile kernel and how to launch it. Parameters: one pointer per buffer, one per workspace, one to the counters and
// one to the mailboxes if there are any, then one i64 per size.
//
// Its conditions are for profit only: the last kernel of a nest has none. What they promise stands in the kernel's
// parameters (multiple_of) and tiles (a row that fits). Machine code is named and counted by who compiles it
// (LaunchSpec::symbol to function), access and facts by who makes the executable (codegen/driver/contract.h).
struct ScheduledKernel : LaunchSpec {
  tile::Kernel kernel;
  Schedule schedule;
  std::string why;                  // for the report: what was chosen
  PredictedTime predicted;          // at the sizes for which it was chosen
  std::string measured;             // of a record: "38.1 us -> 35.0 us on NVIDIA H200"; empty: chosen by the cost
  std::vector<ExtentRange> extents; // by axis of the domain, for which the schedule was found to be right (legal.h)
  std::vector<ValueId> buffers;     // graph values, in parameter order
  // Per buffer, the read buffers whose memory a written one may take over: read only where the same program has yet to
  // write, with elements of the same size. Two outputs must not take the same one.
  std::vector<std::vector<int>> may_overwrite;
  // Results that a kernel changes in place, and the operands whose elements they have before: {operand, result}. The
  // executable copies them, unless the result takes over the operand's memory.
  std::vector<std::pair<ValueId, ValueId>> begins_as;
};

// The requirements on a kernel whatever its schedule is.
struct LoweringOptions {
  bool exact_division = false; // x / s stays a division where s comes from the row's reductions (strict rounding), and
                               // sums are not folded online; false: x * (1 / s)
  std::span<const Schedule> without = {}; // schedules that are not to be chosen, since code for them failed
  Schedule* lowering = nullptr;           // given each schedule before it is lowered
  bool records = true;                    // schedules that were measured on the target count (schedule_records.h)
};

// On a GPU (device.kind) a nest has several kernels: for sizes with conditions, and last one for every size. Their
// buffers and may_overwrite agree. docs/schedules.md. Schedules of `tuned` (tuned.h) come first; one that is not legal
// is passed over.
class TunedSchedules;
[[nodiscard]] Result<std::vector<ScheduledKernel>> lower_for_gpu(const Graph& graph, const LoopNest& nest,
                                                                 const Target& device, const std::string& name,
                                                                 const LoweringOptions& options = {},
                                                                 const TunedSchedules* tuned = nullptr);
// A host has one kernel for all sizes. Works for every verified nest; never fails for a shape. Errors of the lowering:
// UnsupportedType for packed, complex and string elements, CodegenError for a schedule that does not fit the nest.
struct HostChoice {
  Schedule schedule;
  std::string why;         // for the report
  PredictedTime predicted; // as ScheduledKernel's, like what follows
  std::string measured;
  std::vector<ExtentRange> extents;
  bool none = false; // no schedule is legal, but those of `without`
};
// `without`: schedules that are not to be chosen, since code for them failed.
[[nodiscard]] HostChoice choose_schedule(const Graph& graph, const LoopNest& nest, const Target& device,
                                         const TunedSchedules* tuned = nullptr, std::span<const Schedule> without = {});
[[nodiscard]] Result<ScheduledKernel> lower_to_tiles(const Graph& graph, const LoopNest& nest, const Schedule& schedule,
                                                     const std::string& name, const LoweringOptions& options = {});

} // namespace tessera
