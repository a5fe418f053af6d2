// Facts of a nest: its streams, the bytes that each moves, and known or typical sizes. Private to the folder.
#pragma once
#include "codegen/schedule/block_space.h"
#include "codegen/schedule/cached_values.h"
#include "codegen/schedule/contraction.h"
#include <algorithm>
#include <array>

namespace tessera {

// An access and how much it moves.
struct Stream {
  const Access* access;
  uint64_t deps; // bit mask of axes
  int bytes;     // bytes per element
  double count;  // distinct elements, estimated
  bool store;
};

// Divisibility of an extent by a number: always (`known`), under a condition on a size (`condition`), or never
// (neither).
struct Multiple {
  bool known = false;
  std::optional<SizeCondition> condition;
};

inline constexpr int kAccessBytes = 16;      // widest vector access of PTX
inline constexpr int64_t kMailboxBlocks = 8; // blocks per row that exchange by mailboxes while blocks of other rows run

class BlockFacts {
public:
  BlockFacts(const Graph& graph, const LoopNest& nest, const Domain& domain, const Target& device);

  const Graph& graph;
  const LoopNest& nest;
  const Domain& d;
  const Target& device;
  std::vector<Stream> streams;
  double largest = 1;                     // largest count of a stream
  int narrow = 0;                         // bytes of the narrowest element among the large streams
  int64_t vector = 1;                     // elements of one vector access to it
  int average_bytes = 1;                  // average element bytes of the large streams, rounded to a power of two
  int live = 1;                           // tile values live at a time
  int contiguous_axis = -1;               // along which most bytes are contiguous; -1 without axes
  std::optional<Contraction> contraction; // what the nest is, if tensor cores compute it

  // True for the load of the matrix of each group of rows, whose streams vary along a group no more.
  [[nodiscard]] bool is_grouped(ScalarId factor) const;
  // Axes along which a load reads other elements: those of groups read their own parts.
  [[nodiscard]] uint64_t deps_of_load(ScalarId load) const;
  [[nodiscard]] bool is_row(size_t axis) const { return d.axes[axis].role == AxisRole::Row; }
  [[nodiscard]] const SymExpr& extent(size_t axis) const { return d.axes[axis].extent; }
  [[nodiscard]] std::string extent_text(size_t axis) const { return d.env.simplify(extent(axis)).str(); }
  [[nodiscard]] SymExpr points(AxisRole role) const; // product of the extents
  [[nodiscard]] std::optional<int64_t> constant(const SymExpr& e) const { return d.env.simplify(e).as_const(); }
  // Element bytes of the large input streams, at least 1; whether byte masks are among them.
  [[nodiscard]] int64_t loaded_bytes() const;
  [[nodiscard]] bool masks() const;
  // True if a large stream is read along a row, but not in its memory order, such as every second element.
  [[nodiscard]] bool strided_rows() const;
  // The constant, else the size in the call that caused this compilation; else a typical size within the range.
  [[nodiscard]] std::optional<int64_t> seen(const SymExpr& e) const;
  [[nodiscard]] double guess(const SymExpr& e) const;
  // For products, the condition is on one factor, which then divides every other product with this factor.
  [[nodiscard]] Multiple multiple(const SymExpr& extent, int64_t k) const;
  // Divisibility of rows by k elements: of their inner axis, or of the inner axes that are contiguous together.
  [[nodiscard]] Multiple row_multiple(int64_t k) const;
  [[nodiscard]] bool contiguous(const Stream& s, size_t axis) const;
  // True if positions along the row are divided by unknown sizes, which takes registers for each element.
  [[nodiscard]] bool divides() const;
  // True if an element of a row is stored, so that it is read again when the row's reductions are known.
  [[nodiscard]] bool stores_rows() const;
  // True if one loop computes everything, so that no tile needs to be cached.
  [[nodiscard]] bool one_pass() const;
  // The placement with the row's axes as columns and all others as rows.
  [[nodiscard]] Placement row_placement() const;
  // Shared memory in bytes for each of `resident` blocks per multiprocessor, without the bytes in which its warps
  // `exchange` partial results.
  static constexpr int64_t kExchangeBytes = 1 << 10; // typical bytes of partial results
  // Shared memory that a block has for exchanges, next to what is resident there (codegen/llvm/gpu_hazards.h).
  static constexpr int64_t kMaxExchangeBytes = 96 << 10;
  [[nodiscard]] int64_t shared_room(int64_t blocks, int64_t exchange = kExchangeBytes) const;
  // Number of tiles with `bytes` per element for later stages that fit in it.
  [[nodiscard]] int64_t tiles_in_shared(int64_t elements, int64_t bytes, int64_t blocks,
                                        int64_t exchange = kExchangeBytes) const;
  // Bytes per element that later stages need: of single rows, or of tiles of columns.
  [[nodiscard]] int64_t cached_element_bytes(bool online) const;
  // True if that is one large stream along the row, as loaded, so that it can be copied to shared memory
  // asynchronously.
  [[nodiscard]] bool keeps_stream(bool online) const;
  // Bytes of the widest element that is computed with; indices of gathers do not count.
  [[nodiscard]] int compute_bytes() const;
  // Registers of accumulators, in f32, per element of the tile.
  [[nodiscard]] int accumulators() const;
  // The cache hint of aligned loads. `again`: a program reads some elements more than once.
  [[nodiscard]] tile::Caching reads(bool again) const;

  // A schedule without a placement; `warps` is clamped to its bounds.
  [[nodiscard]] static Schedule schedule(ScheduleKind kind, int64_t rows, int64_t columns, int64_t warps);
  // "tile [8, 256] on 8 warps, 8 elements a thread"
  [[nodiscard]] static std::string sizes(const Schedule& schedule);

private:
  // Elements of a row that are contiguous in all large streams: the extents of its inner axes.
  [[nodiscard]] SymExpr row_run() const;
  [[nodiscard]] int find_contiguous_axis() const;
  [[nodiscard]] std::vector<CachedValue> cached_values(bool online) const; // values cached between stages
  // True if another kernel may read a value's memory; conservatively, any later one in the plan.
  [[nodiscard]] bool read_elsewhere(ValueId value) const;
  mutable std::vector<std::vector<NodeId>> users_;         // by value of the graph; filled at first use
  mutable std::array<int64_t, 2> cached_bytes_ = {-1, -1}; // with and without online sums; likewise
};

// Starts of rows along axis `axis`, in elements, of the accesses that are contiguous along it and move the most bytes;
// one for each alignment modulo `vector` elements. Empty if there are none, or all starts are multiples of `shift`.
[[nodiscard]] std::optional<SymExpr> shifted_start(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                                   size_t axis, int64_t vector, int64_t shift);

// For an access that is contiguous along axis `along` and moves along `across` by a step known before the kernel runs
// and at least its extent: the step. Nothing for other accesses.
[[nodiscard]] std::optional<SymExpr> staged_pitch(const Domain& domain, const Access& access, size_t along,
                                                  size_t across);

// For misaligned rows: the alignment of a thread's accesses in the tile. alignment_peel may be a multiple of it.
[[nodiscard]] int peel_access(const Schedule& schedule);

// The alignment peel of rows with the average element size: 1 if all rows are aligned, or have several axes. Rows of
// several tiles begin at cache lines, so that no two tiles of a row share a line.
[[nodiscard]] int row_shift(const BlockFacts& facts, bool several_tiles);

// Values that vary with some axis and are alive at one time, at most, when the nest is computed in its order.
[[nodiscard]] int values_alive(const LoopNest& nest, const Domain& domain);

[[nodiscard]] int64_t power_above(int64_t n); // at least 1
[[nodiscard]] int64_t power_below(int64_t n);

// Shared memory in bytes in which the block of a tile with columns along axis `along` exchanges values; large if large
// streams are contiguous along another axis, because then the tile is converted between layouts.
[[nodiscard]] int64_t exchange_bytes(const BlockFacts& facts, int64_t elements, size_t along);

// Shared memory in bytes without which a block of the schedule does not run.
struct SharedNeeds {
  int64_t resident = 0; // from its first access to the kernel's end
  int64_t exchange = 0; // of the largest exchange between threads, at most
};
[[nodiscard]] SharedNeeds shared_needs(const BlockFacts& facts, const Schedule& schedule);

} // namespace tessera
