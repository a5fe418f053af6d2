// What the choice of a block's tile is made from: the streams of a nest, how much each moves, and what is known or
// guessed of sizes. Private to the folder.
#pragma once
#include "codegen/schedule/block_space.h"
#include "codegen/schedule/kept.h"
#include <algorithm>

namespace tessera {

// An access and how much it moves.
struct Stream {
  const Access* access;
  uint64_t deps; // axes, as bits
  int bytes;     // of an element
  double count;  // distinct elements, roughly
  bool store;
};

// What makes an extent a multiple of a number: nothing, or a condition on a size. Neither: it never is one.
struct Multiple {
  bool known = false;
  std::optional<SizeCondition> condition;
};

inline constexpr int kAccessBytes = 16;         // widest vector access of PTX
inline constexpr int64_t kToldBesideOthers = 8; // members of a team by messages while other teams run

class BlockFacts {
public:
  BlockFacts(const Graph& graph, const LoopNest& nest, const Domain& domain, const Target& device);

  const Graph& graph;
  const LoopNest& nest;
  const Domain& d;
  const Target& device;
  std::vector<Stream> streams;
  double largest = 1;       // of the streams' counts
  int narrow = 0;           // bytes of the narrowest element among the large streams
  int64_t vector = 1;       // elements of one access to it
  int usual = 1;            // bytes of an element on the average of the large streams, a power of two
  int live = 1;             // tile values alive at a time
  int contiguous_axis = -1; // along which most bytes are contiguous; -1 without axes

  [[nodiscard]] bool is_row(size_t axis) const { return d.axes[axis].role == AxisRole::Row; }
  [[nodiscard]] const SymExpr& extent(size_t axis) const { return d.axes[axis].extent; }
  [[nodiscard]] std::string extent_text(size_t axis) const { return d.env.simplify(extent(axis)).str(); }
  [[nodiscard]] SymExpr points(AxisRole role) const; // product of the extents
  [[nodiscard]] std::optional<int64_t> constant(const SymExpr& e) const { return d.env.simplify(e).as_const(); }
  // Bytes of an element of the large streams that are read, at least 1; whether masks of bytes are among them.
  [[nodiscard]] int64_t loaded_bytes() const;
  [[nodiscard]] bool masks() const;
  // Whether a large stream is read along a row, but not in its order in memory: every second element of it.
  [[nodiscard]] bool strided_rows() const;
  // What is known, or was seen by the call that leads to this compilation; else a usual size within the range.
  [[nodiscard]] std::optional<int64_t> seen(const SymExpr& e) const;
  [[nodiscard]] double guess(const SymExpr& e) const;
  // Of products a factor is asked for, which then divides every other product with it.
  [[nodiscard]] Multiple multiple(const SymExpr& extent, int64_t k) const;
  // Whether rows are whole pieces of k elements: their inner axis, or the inner ones that are one run in memory.
  [[nodiscard]] Multiple row_multiple(int64_t k) const;
  [[nodiscard]] bool contiguous(const Stream& s, size_t axis) const;
  // Whether positions along the row are divided by sizes that are not known, which takes registers for each element.
  [[nodiscard]] bool divides() const;
  // Whether something is stored for each element of a row, which then is read once more when its reductions are known.
  [[nodiscard]] bool stores_rows() const;
  // Whether one loop yields everything, so that nothing need be kept.
  [[nodiscard]] bool one_pass() const;
  // The row's axes as columns, all others as rows.
  [[nodiscard]] Placement row_placement() const;
  // Bytes of shared memory that each of so many blocks on a multiprocessor has, beside what its warps `exchange`.
  static constexpr int64_t kExchangeBytes = 1 << 10; // usually
  [[nodiscard]] int64_t shared_room(int64_t blocks, int64_t exchange = kExchangeBytes) const;
  // Tiles of so many elements, of each of which later rounds need `bytes`, that fit there.
  [[nodiscard]] int64_t tiles_in_shared(int64_t elements, int64_t bytes, int64_t blocks,
                                        int64_t exchange = kExchangeBytes) const;
  // Bytes of an element that later rounds need, of what a program holds: rows one at a time, or tiles of columns.
  [[nodiscard]] int64_t kept_element(bool online) const;
  // Whether that is one large stream along the row, as it was loaded: it can be copied to shared memory.
  [[nodiscard]] bool keeps_stream(bool online) const;
  // Bytes of the widest element that is computed with; indices of gathers do not count.
  [[nodiscard]] int compute_bytes() const;
  // Registers of accumulators, in f32, per element of the tile.
  [[nodiscard]] int accumulators() const;
  // What caches are told of loads, all of them whole accesses. `again`: a program reads some of
  // it more than once.
  [[nodiscard]] tile::Caching reads(bool again) const;

  // Without a placement; `warps` is brought into its bounds.
  [[nodiscard]] static Schedule schedule(ScheduleKind kind, int64_t rows, int64_t columns, int64_t warps);
  // "tile [8, 256] on 8 warps, 8 elements a thread"
  [[nodiscard]] static std::string sizes(const Schedule& schedule);

private:
  // Elements of a row that follow each other in all large streams: the extents of its inner axes.
  [[nodiscard]] SymExpr row_run() const;
  [[nodiscard]] int find_contiguous_axis() const;
  [[nodiscard]] std::vector<KeptValue> kept(bool online) const; // between rounds
  // Whether another kernel may read a value's memory: one later in the plan, for all that is known here.
  [[nodiscard]] bool read_elsewhere(ValueId value) const;
  mutable std::vector<std::vector<NodeId>> users_; // of the graph's values, once somebody asks
};

// Where rows along axis `axis` start, in elements of the buffers, in the accesses that are contiguous along it and move
// the most bytes; of several with the same alignment modulo `vector` elements, one. Nothing where there are none, or
// all these starts are multiples of `shift`.
[[nodiscard]] std::optional<SymExpr> shifted_start(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                                   size_t axis, int64_t vector, int64_t shift);

// Of an access that is contiguous along axis `along`, and moves with `across` in steps that are known before the kernel
// runs, at least as far as its runs are long: the step. Nothing of other accesses.
[[nodiscard]] std::optional<SymExpr> staged_pitch(const Domain& domain, const Access& access, size_t along,
                                                  size_t across);

// Of misaligned rows: where a thread's accesses may begin in the tile. alignment_peel may be several of them.
[[nodiscard]] int peel_access(const Schedule& schedule);

// The alignment peel of rows of elements as usual: 1 where they all start at whole accesses, or have several axes.
// Rows of several tiles begin at lines, so that no two tiles of a row share one.
[[nodiscard]] int row_shift(const BlockFacts& facts, bool several_tiles);

// Values that vary with some axis and are alive at one time, at most, when the nest is computed in its order.
[[nodiscard]] int values_alive(const LoopNest& nest, const Domain& domain);

[[nodiscard]] int64_t power_above(int64_t n); // at least 1
[[nodiscard]] int64_t power_below(int64_t n);

// Of a tile of so many elements with columns along axis `along`: shared memory that its block needs to exchange values,
// much where large streams are contiguous along another axis, so that the tile changes threads.
[[nodiscard]] int64_t exchange_bytes(const BlockFacts& facts, int64_t elements, size_t along);

} // namespace tessera
