// Few long rows: how many programs share each, and when.
//
// A multiprocessor reads some 40 GB/s by itself, all of them together 4.4 TB/s. Rows that are fewer than the
// multiprocessors leave the others idle; a team for each costs a meeting, some microseconds. Where nobody waits
// (results of the row alone) there may be as many programs as there are tiles. Programs that wait must all be resident.
#include "codegen/schedule/block_team_plans.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"
#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kMostPartials = 8192;   // members and columns that the last one reads
constexpr int64_t kPartialRegisters = 32; // of a thread that waits, for what its team has folded

} // namespace

TeamShares::TeamShares(const BlockFacts& facts, bool online)
    : f_(facts), online_(online), row_(f_.d.env.simplify(f_.d.row_count())), points_(f_.points(AxisRole::Outer)),
      programs_(f_.device.multiprocessors) {
  find_rounds();
}

// Who needs what is folded decides whether programs wait.
void TeamShares::find_rounds() {
  Domain domain = f_.d;
  OnlineSums sums;
  if (online_) sums = find_online(f_.nest, domain);
  Stages stages = plan_stages(f_.nest, domain);
  kept_bytes_ = f_.kept_element(online_);
  size_t rounds = 0, last = 0;
  for (size_t s = 0; s < stages.stages.size(); ++s) {
    if (stages.stages[s].reduces.empty()) continue;
    ++rounds;
    last = s;
    const FoldState state = fold_state(f_.nest, stages.stages[s].reduces, sums);
    states_ = std::max(states_, state.dtypes.size());
    int64_t bytes = 0;
    for (DType d : state.dtypes) {
      bytes += byte_size(d, 1);
    }
    state_bytes_ = std::max(state_bytes_, bytes);
  }
  rounds_ = rounds > 0 ? rounds + (last + 1 < stages.stages.size()) : 0;
  waits_ = rounds > 1 || last + 1 < stages.stages.size();
}

int64_t TeamShares::most_partials(int64_t threads) const {
  return waits_ ? power_below(threads * kPartialRegisters / static_cast<int64_t>(states_)) : kMostPartials;
}

void TeamShares::share(BlockPlan& p) const {
  const bool rows = f_.is_row(p.groups.columns.front());
  rows ? share_row(p) : share_columns(p);
  if (rows && waits_) {
    p.reads = f_.reads(true);
  }
  p.waits = waits_;
  p.most_members = f_.constant(*p.team).value_or(p.most_members);
  p.messages = waits_ && rows && p.most_members <= most_told(p);
}

// Messages are the square of the members. While others' loads and stores are under way the last of many is late.
int64_t TeamShares::most_told(const BlockPlan& p) const {
  constexpr int64_t kMost = 128;
  const auto grid = f_.constant(f_.d.env.simplify(points_ * *p.team));
  const bool alone = p.programs > 0 || (grid && *grid <= p.min_blocks * f_.device.multiprocessors);
  return std::min(alone ? kMost : kToldBesideOthers, int64_t{32} * p.warps);
}

// As many members as there are programs for a team, tiles for a member, and places for what they fold.
void TeamShares::share_columns(BlockPlan& p) const {
  SymExpr team = sym_min(floordiv(p.programs, column_teams(f_, p)), p.most_members);
  team = sym_min(team, ceildiv(row_, p.rows));
  p.team = f_.d.env.simplify(waits_ ? team : sym_max(team, 1));
}

// A tile each; or what all teams together may have; or as many as hold the row, all but what its alignment adds.
void TeamShares::share_row(BlockPlan& p) const {
  const SymExpr places = row_ + SymExpr(p.shift - 1);
  SymExpr team = ceildiv(places, p.loop ? (int64_t{p.keep} + 1) * p.columns : p.columns);
  if (p.loop && p.programs > 0) {
    team = floordiv(p.programs, points_);
    if (!waits_) team = sym_min(ceildiv(row_, p.columns), team);
  }
  p.team = f_.d.env.simplify(team);
}

BlockPlan TeamShares::column_team(const AxisGroups& groups, const ColumnTeam& t) const {
  const int64_t rows = std::max<int64_t>(2, t.threads * t.each / t.columns), elements = rows * t.columns;
  BlockPlan p = BlockFacts::plan(ScheduleKind::BlockTeam, rows, t.columns, t.threads / 32);
  p.groups = groups;
  p.loop = true;
  p.programs = static_cast<int>(t.resident * programs_);
  p.most_members = t.partials / t.columns;
  share(p);
  p.min_blocks = static_cast<int>(t.resident);
  p.keep = kept_tiles(elements, t.resident, exchange_bytes(f_, elements, static_cast<size_t>(f_.contiguous_axis)));
  p.steps = static_cast<int>(std::min(std::max<int64_t>(1, t.each / f_.vector), rows / 2));
  return p;
}

BlockPlan TeamShares::row_team(const RowTeam& t) const {
  BlockPlan p = BlockFacts::plan(ScheduleKind::BlockTeam, 1, t.threads * t.each, t.threads / 32);
  p.groups = f_.row_groups();
  p.loop = t.loop;
  p.shift = t.shift;
  // As many as are accessed at once, or elements would change threads between being loaded and being folded.
  int64_t access = kAccessBytes / f_.usual;
  while (!t.vectors && access > 1 && (t.shift > 1 || !f_.row_multiple(access).known)) access /= 2;
  p.run = static_cast<int>(std::min(t.each, access));
  p.steps = static_cast<int>(t.each / p.run);
  p.streaming = waits_ && t.loop && t.shift == 1; // shifted rows end within lines, which two programs write
  p.min_blocks = static_cast<int>(t.resident);
  p.programs = static_cast<int>(t.programs);
  const int64_t resident = std::max<int64_t>(1, t.resident);
  if (t.loop) p.keep = kept_tiles(p.columns, resident);
  p.most_members = t.members;
  if (!waits_ && t.vectors && t.shift == 1) p.reads = f_.reads(false);
  share(p);
  if (t.loop) keep_fitting(p, resident);
  return p;
}

// What the messages of a large team take is not there for tiles, and what all members have has not to be.
void TeamShares::keep_fitting(BlockPlan& p, int64_t resident) const {
  if (p.messages && exchange(p) > BlockFacts::kExchangeBytes) {
    p.keep = std::min(p.keep, kept_tiles(p.columns, resident, exchange(p)));
    share(p);
  }
  const auto n = f_.constant(row_), team = f_.constant(*p.team);
  if (!n || !team || *team < 1) return;
  const int64_t round = *team * p.columns, tiles = (*n + p.shift - 1 + round - 1) / round;
  p.keep = static_cast<int>(std::min<int64_t>(p.keep, tiles - 1));
}

// Bytes of shared memory in which warps and members tell each other numbers, in two places by turns.
int64_t TeamShares::exchange(const BlockPlan& p) const {
  return 2 * state_bytes_ * p.warps + state_bytes_ * power_above(p.most_members);
}

int TeamShares::kept_tiles(int64_t elements, int64_t resident, int64_t exchange) const {
  return waits_ ? static_cast<int>(f_.tiles_in_shared(elements, kept_bytes_, resident, exchange)) : 0;
}

SymExpr column_teams(const BlockFacts& f, const BlockPlan& p) {
  SymExpr width = 1, others = 1;
  for (size_t i : p.groups.columns) width *= f.extent(i);
  for (size_t i : p.groups.points) others *= f.extent(i);
  return f.d.env.simplify(ceildiv(width, p.columns) * others);
}
BlockPlan column_team(const BlockFacts& facts, const AxisGroups& groups, const ColumnTeam& team, bool online) {
  return TeamShares(facts, online).column_team(groups, team);
}
BlockPlan row_team(const BlockFacts& facts, const RowTeam& team, bool online) {
  return TeamShares(facts, online).row_team(team);
}
void share_team(const BlockFacts& facts, BlockPlan& plan, bool online) { TeamShares(facts, online).share(plan); }
int64_t most_partials(const BlockFacts& facts, int64_t threads, bool online) {
  return TeamShares(facts, online).most_partials(threads);
}

} // namespace tessera
