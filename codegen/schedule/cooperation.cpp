// Few long rows: how many blocks share each, and when.
//
// A multiprocessor reads some 40 GB/s by itself, all of them together 4.4 TB/s. Rows that are fewer than the
// multiprocessors leave the others idle; cooperation costs a grid barrier, some microseconds. Where nobody waits
// (results of the row alone) there may be as many blocks as there are tiles. Blocks that wait must all be resident.
#include "codegen/schedule/cooperation.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"
#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kMostPartials = 8192;   // partial results that the last one reads
constexpr int64_t kPartialRegisters = 32; // of a thread that waits, for partial results

} // namespace

// Who needs what is folded decides whether blocks wait.
Sharing::Sharing(const BlockFacts& facts, bool online)
    : f_(facts), online_(online), row_(f_.d.env.simplify(f_.d.row_count())), points_(f_.points(AxisRole::Outer)) {
  Domain domain = f_.d;
  OnlineSums sums;
  if (online) sums = find_online(f_.nest, domain);
  const Stages stages = plan_stages(f_.nest, domain);
  cached_bytes_ = f_.kept_element(online);
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

int64_t Sharing::most_partials(int64_t threads) const {
  return waits_ ? power_below(threads * kPartialRegisters / static_cast<int64_t>(states_)) : kMostPartials;
}

Cooperative Sharing::cooperative(const Schedule& s) const {
  const bool rows = (s.placement.column_axes & f_.d.row_mask) != 0;
  Cooperative c;
  c.blocks_per_row = rows ? blocks_of_row(s) : blocks_of_columns(s);
  c.grid_barrier = waits_;
  c.max_blocks_per_row = f_.constant(c.blocks_per_row).value_or(s.cooperation.max_blocks_per_row);
  c.mailboxes = waits_ && rows && c.max_blocks_per_row <= most_told(s, c.blocks_per_row);
  return c;
}

Schedule Sharing::column_team(const Placement& placement, const ColumnTeam& t) const {
  const int64_t rows = std::max<int64_t>(2, t.threads * t.each / t.columns), elements = rows * t.columns;
  Schedule s = BlockFacts::schedule(ScheduleKind::BlockTeam, rows, t.columns, t.threads / 32);
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

Schedule Sharing::row_team(const RowTeam& t) const {
  Schedule s = BlockFacts::schedule(ScheduleKind::BlockTeam, 1, t.threads * t.each, t.threads / 32);
  s.placement = f_.row_placement();
  s.traversal.online = online_;
  s.traversal.loop = t.loop;
  s.access.alignment_peel = t.alignment_peel;
  // As many as are accessed at once, or elements would change threads between being loaded and being folded.
  int64_t access = kAccessBytes / f_.usual;
  while (!t.vectors && access > 1 && (t.alignment_peel > 1 || !f_.row_multiple(access).known)) access /= 2;
  s.tile.contiguous = static_cast<int>(std::min(t.each, access));
  s.traversal.fold_steps = static_cast<int>(t.each / s.tile.contiguous);
  // Misaligned rows end within lines, which two blocks write.
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

// Messages are the square of the blocks. While others' loads and stores are in flight the last of many is late.
int64_t Sharing::most_told(const Schedule& s, const SymExpr& blocks_per_row) const {
  constexpr int64_t kMost = 128;
  const auto grid = f_.constant(f_.d.env.simplify(points_ * blocks_per_row));
  const bool alone =
      s.cooperation.max_blocks > 0 || (grid && *grid <= int64_t{s.access.min_blocks} * f_.device.multiprocessors);
  return std::min(alone ? kMost : kToldBesideOthers, int64_t{32} * s.tile.warps);
}

// As many as there are blocks for columns, tiles for a block, and places for partial results.
SymExpr Sharing::blocks_of_columns(const Schedule& s) const {
  SymExpr blocks = sym_min(floordiv(s.cooperation.max_blocks, column_teams(f_, s)), s.cooperation.max_blocks_per_row);
  blocks = sym_min(blocks, ceildiv(row_, s.tile.rows));
  return f_.d.env.simplify(waits_ ? blocks : sym_max(blocks, 1));
}

// A tile each; or what the grid may have; or as many as hold the row, all but what its alignment adds.
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

// What the messages of many blocks take is not there for tiles, and what all blocks have has not to be.
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

// Tiles of `elements` that fit a block's share of shared memory, beside what its warps `exchange`.
int Sharing::cached_tiles(int64_t elements, int64_t resident, int64_t exchange) const {
  return waits_ ? static_cast<int>(f_.tiles_in_shared(elements, cached_bytes_, resident, exchange)) : 0;
}

SymExpr column_teams(const BlockFacts& f, const Schedule& s) {
  const Placement& p = s.placement;
  SymExpr width = 1, others = 1;
  for (size_t i = 0; i < f.d.axes.size(); ++i) {
    if (p.column_axes >> i & 1) width *= f.extent(i);
    if (!((p.column_axes | p.row_axes) >> i & 1)) others *= f.extent(i);
  }
  return f.d.env.simplify(ceildiv(width, s.tile.columns) * others);
}

} // namespace tessera
