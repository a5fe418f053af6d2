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
  for (const Stream& s : f_.streams) {
    total_ += s.count * s.bytes;
    if (!s.store && rounds_ > 0) again_ += s.count * s.bytes * static_cast<double>(rounds_ - 1);
  }
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
      positions_ = positions_ || (states_ > 1 && (d == DType::I32 || d == DType::I64));
    }
    state_bytes_ = std::max(state_bytes_, bytes);
  }
  for (const Stream& s : f_.streams) {
    if (s.count >= f_.largest / 2) element_ += s.bytes;
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
    if (p.reads == tile::Caching::Lasting && holds_much(p)) p.reads = tile::Caching::Passing;
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
  // Not where positions are divided, twice then, nor where masks take the registers of narrow elements. Of strided
  // rows just those.
  const bool masks = t.shift > 1 && (f_.lean() || f_.narrow_masks());
  const bool ahead = f_.strided_rows() ? t.shift > 1 && f_.lean() : !masks;
  p.ahead = t.ahead && ahead && waits_ && t.loop && p.groups.columns.size() == 1;
  p.min_blocks = static_cast<int>(t.resident);
  p.programs = static_cast<int>(t.programs);
  const int64_t resident = std::max<int64_t>(1, t.resident);
  if (t.loop) p.keep = static_cast<int>(std::min<int64_t>(t.keep, kept_tiles(p.columns, resident)));
  p.most_members = t.members;
  if (!waits_ && t.vectors && t.shift == 1) p.reads = f_.reads(false);
  share(p);
  if (t.loop) keep_fitting(p, resident);
  p.copied = copies(p);
  if (p.copied) p.ahead = false;
  return p;
}

// Where teams follow each other what is kept is copied, all of it under way at once: of 16 bits where members have
// large shares, of nothing but whole tiles. Messages would wait behind the copies where all programs begin, and meet,
// at a time.
bool TeamShares::copies(const BlockPlan& p) const {
  if (!waits_ || !p.loop || p.keep < 1 || p.programs > 0 || p.shift > 1 || p.groups.columns.size() != 1) return false;
  if (!f_.keeps_stream(online_)) return false;
  if (f_.usual >= 4) return true;
  constexpr int kLarge = 4; // blocks of a multiprocessor
  const auto n = f_.constant(row_), members = f_.constant(*p.team);
  return p.min_blocks <= kLarge && n && members && *n == *members * (int64_t{p.keep} + 1) * p.columns;
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

// Rows of 16 bits, nothing of which is read again, and of which a multiprocessor holds so much that what it has read
// need not last in the L2: it would only be in the way of what is written. Shifted ones by what there is room for; of
// whole accesses one stream, of which all rows are held at a time, by what there is.
bool TeamShares::holds_much(const BlockPlan& p) const {
  constexpr int64_t kMuchShifted = 96 << 10, kMuchWhole = 160 << 10; // bytes
  if (!p.loop || f_.usual != 2) return false;
  const auto n = f_.constant(row_), members = f_.constant(*p.team);
  const int64_t share = (int64_t{p.keep} + 1) * p.columns;
  if (!n || !members || *members * share < *n + p.shift - 1) return false;
  if (p.shift > 1) return share * kept_bytes_ * p.min_blocks >= kMuchShifted;
  const auto rows = f_.constant(points_);
  if (!rows || p.programs == 0 || f_.loaded_bytes() > f_.usual) return false;
  return *rows * *n * kept_bytes_ >= kMuchWhole * f_.device.multiprocessors;
}

int TeamShares::kept_tiles(int64_t elements, int64_t resident, int64_t exchange) const {
  return waits_ ? static_cast<int>(f_.tiles_in_shared(elements, kept_bytes_, resident, exchange)) : 0;
}

std::optional<std::vector<SizeCondition>> TeamShares::few_and_long(int64_t most, int64_t least) const {
  // Where the number of rows grows with their length, long ones are not few; nor, as a rule, where it is the product
  // of several sizes (heads and positions). Kernels that are never launched take time to compile.
  auto symbols = row_.symbols();
  if (std::any_of(symbols.begin(), symbols.end(), [&](const SymExpr& s) { return points_.contains(s); }) ||
      (!symbols.empty() && points_.symbols().size() > 1))
    return std::nullopt;
  SymRange points = f_.d.env.range(points_), row = f_.d.env.range(row_);
  if (points.lo > most || row.hi < least) return std::nullopt;
  std::vector<SizeCondition> list;
  if (points.hi > most || points.lo < 1) list.push_back({points_, 1, 1, most});
  if (row.lo < least) list.push_back({row_, 1, least});
  return list;
}

std::vector<BlockPlan> team_plans(const BlockFacts& facts, bool online) {
  const TeamShares shares(facts, online);
  if (!shares.folds()) return {};
  const bool rows = facts.is_row(static_cast<size_t>(facts.contiguous_axis));
  std::vector<BlockPlan> plans = rows ? row_team_plans(shares) : column_team_plans(shares);
  for (BlockPlan& p : plans) {
    p.waits = shares.waits();
    p.schedule.why += "; " + BlockFacts::sizes(p) + ", " + facts.d.env.simplify(*p.team).str() + " programs a row" +
                      (p.waits ? ", which wait for each other" : ", of which the last one finishes");
  }
  return plans;
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
