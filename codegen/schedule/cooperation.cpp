// Few long rows: the number of cooperative blocks per row.
//
// A multiprocessor reads a small part of what memory yields to all of them. With fewer rows than multiprocessors the
// others are idle; cooperation costs a grid barrier. If no block waits (only results of the row
// follow), there can be as many blocks as tiles. Blocks that wait must all be resident.
#include "codegen/schedule/cooperation.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"
#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kMaxPartials = 8192;    // partial results that the last block to arrive reads
constexpr int64_t kPartialRegisters = 32; // registers per thread for partial results, of blocks that wait

} // namespace

// Blocks wait if a later stage or elements need the reductions.
Sharing::Sharing(const BlockFacts& facts, bool online)
    : f_(facts), online_(online), row_(f_.d.env.simplify(f_.d.row_count())), points_(f_.points(AxisRole::Outer)) {
  Domain domain = f_.d;
  OnlineSums sums;
  if (online) sums = find_online(f_.nest, domain);
  const Stages stages = plan_stages(f_.nest, domain);
  cached_bytes_ = f_.cached_element_bytes(online);
  for (const Stage& stage : stages.stages) {
    if (stage.reduces.empty()) continue;
    const FoldState state = fold_state(f_.nest, stage.reduces, sums);
    states_ = std::max(states_, state.dtypes.size());
    int64_t bytes = 0;
    for (DType d : state.dtypes) bytes += byte_size(d, 1);
    state_bytes_ = std::max(state_bytes_, bytes);
  }
  waits_ = stages.folds_are_read();
}

int64_t Sharing::max_partials(int64_t threads) const {
  return waits_ ? power_below(threads * kPartialRegisters / static_cast<int64_t>(states_)) : kMaxPartials;
}

Cooperative Sharing::cooperative(const Schedule& s) const {
  const bool rows = (s.placement.column_axes & f_.d.row_mask) != 0;
  Cooperative c;
  c.blocks_per_row = rows ? blocks_of_row(s) : blocks_of_columns(s);
  c.grid_barrier = waits_;
  c.max_blocks_per_row = f_.constant(c.blocks_per_row).value_or(s.cooperation.max_blocks_per_row);
  c.mailboxes = waits_ && rows && c.max_blocks_per_row <= max_mailbox_blocks(s, c.blocks_per_row);
  return c;
}

Schedule Sharing::cooperative_columns(const Placement& placement, const CooperativeColumns& t) const {
  const int64_t rows = std::max<int64_t>(2, t.threads * t.each / t.columns), elements = rows * t.columns;
  Schedule s = BlockFacts::schedule(ScheduleKind::BlockCooperative, rows, t.columns, t.threads / 32);
  s.placement = placement;
  s.traversal.online = online_;
  s.traversal.loop = true;
  s.cooperation.max_blocks = static_cast<int>(t.resident * f_.device.multiprocessors);
  s.cooperation.max_blocks_per_row = t.partials / t.columns;
  s.access.min_blocks = static_cast<int>(t.resident);
  s.residency.cached_tiles =
      cached_tiles(elements, t.resident, exchange_bytes(f_, elements, static_cast<size_t>(f_.contiguous_axis)));
  s.traversal.fold_steps = static_cast<int>(std::min(std::max<int64_t>(1, t.each / f_.vector), rows / 2));
  return s;
}

Schedule Sharing::cooperative_rows(const CooperativeRows& t) const {
  Schedule s = BlockFacts::schedule(ScheduleKind::BlockCooperative, 1, t.threads * t.each, t.threads / 32);
  s.placement = f_.row_placement();
  s.traversal.online = online_;
  s.traversal.loop = t.loop;
  s.access.alignment_peel = t.alignment_peel;
  // A thread takes as many elements as one access has; otherwise elements would move between threads after the load.
  int64_t access = kAccessBytes / f_.average_bytes;
  while (!t.vectors && access > 1 && (t.alignment_peel > 1 || !f_.row_multiple(access).known)) access /= 2;
  s.tile.contiguous = static_cast<int>(std::min(t.each, access));
  s.traversal.fold_steps = static_cast<int>(t.each / s.tile.contiguous);
  // Misaligned rows end within cache lines that two blocks write.
  s.access.streaming_stores = waits_ && t.loop && t.alignment_peel == 1;
  s.access.min_blocks = static_cast<int>(t.resident);
  s.cooperation.max_blocks = static_cast<int>(t.max_blocks);
  const int64_t resident = std::max<int64_t>(1, t.resident);
  if (t.loop) s.residency.cached_tiles = cached_tiles(s.tile.columns, resident);
  if (waits_)
    s.access.load_hint = f_.reads(true);
  else if (t.vectors && t.alignment_peel == 1)
    s.access.load_hint = f_.reads(false);
  if (t.loop) cache_fitting(s, resident);
  return s;
}

// The number of packets is the square of the number of blocks. While blocks of other rows load and store, the last of
// many packets is late.
int64_t Sharing::max_mailbox_blocks(const Schedule& s, const SymExpr& blocks_per_row) const {
  constexpr int64_t kMax = 128;
  const auto grid = f_.constant(f_.d.env.simplify(points_ * blocks_per_row));
  const bool alone =
      s.cooperation.max_blocks > 0 || (grid && *grid <= int64_t{s.access.min_blocks} * f_.device.multiprocessors);
  return std::min(alone ? kMax : kMailboxBlocks, int64_t{32} * s.tile.warps);
}

// Bounded by the blocks per group of columns, the tiles of a column, and the partial results that a block can hold.
SymExpr Sharing::blocks_of_columns(const Schedule& s) const {
  SymExpr blocks = sym_min(floordiv(s.cooperation.max_blocks, column_groups(f_, s)), s.cooperation.max_blocks_per_row);
  blocks = sym_min(blocks, ceildiv(row_, s.tile.rows));
  return f_.d.env.simplify(waits_ ? blocks : sym_max(blocks, 1));
}

// One tile per block; or the blocks of the grid; or as many as hold the row, without the peel.
SymExpr Sharing::blocks_of_row(const Schedule& s) const {
  const SymExpr places = row_ + SymExpr(s.access.alignment_peel - 1);
  const bool loop = s.traversal.loop;
  SymExpr blocks = ceildiv(places, loop ? (int64_t{s.residency.cached_tiles} + 1) * s.tile.columns : s.tile.columns);
  if (loop && s.cooperation.max_blocks > 0) {
    blocks = floordiv(s.cooperation.max_blocks, points_);
    if (!waits_) blocks = sym_min(ceildiv(row_, s.tile.columns), blocks);
  }
  return f_.d.env.simplify(blocks);
}

// Reduces cached tiles by the shared memory of partial results, and to the tiles that a block has.
void Sharing::cache_fitting(Schedule& s, int64_t resident) const {
  Cooperative c = cooperative(s);
  if (c.mailboxes && exchange(s, c) > BlockFacts::kExchangeBytes) {
    s.residency.cached_tiles =
        std::min(s.residency.cached_tiles, cached_tiles(s.tile.columns, resident, exchange(s, c)));
    c = cooperative(s);
  }
  const auto n = f_.constant(row_), blocks = f_.constant(c.blocks_per_row);
  if (!n || !blocks || *blocks < 1) return;
  const int64_t round = *blocks * s.tile.columns, tiles = (*n + s.access.alignment_peel - 1 + round - 1) / round;
  s.residency.cached_tiles = static_cast<int>(std::min<int64_t>(s.residency.cached_tiles, tiles - 1));
}

// Bytes of shared memory in which warps and blocks exchange partial results, double buffered.
int64_t Sharing::exchange(const Schedule& s, const Cooperative& c) const {
  return 2 * state_bytes_ * s.tile.warps + state_bytes_ * power_above(c.max_blocks_per_row);
}

// Tiles of `elements` that fit a block's share of shared memory, without the bytes in which its warps `exchange`.
int Sharing::cached_tiles(int64_t elements, int64_t resident, int64_t exchange) const {
  return waits_ ? static_cast<int>(f_.tiles_in_shared(elements, cached_bytes_, resident, exchange)) : 0;
}

SymExpr column_groups(const BlockFacts& f, const Schedule& s) {
  const Placement& p = s.placement;
  SymExpr width = 1, others = 1;
  for (size_t i = 0; i < f.d.axes.size(); ++i) {
    if (p.column_axes >> i & 1) width *= f.extent(i);
    if (!((p.column_axes | p.row_axes) >> i & 1)) others *= f.extent(i);
  }
  return f.d.env.simplify(ceildiv(width, s.tile.columns) * others);
}

} // namespace tessera
