#include "codegen/schedule/block_config.h"
#include "codegen/schedule/window_facts.h"
#include "codegen/tile/rules.h"
#include <algorithm>
#include <bit>

namespace tessera {
namespace {

constexpr int64_t kMostElements = 256;    // of a thread's tile: what comes from a file may be anything
constexpr int64_t kMostMembers = 1 << 14; // of a team

int64_t bits(const std::vector<size_t>& axes) {
  uint64_t set = 0;
  for (size_t a : axes)
    if (a < 63) set |= uint64_t{1} << a;
  return static_cast<int64_t>(set);
}

bool is_block(ScheduleKind kind) {
  return kind == ScheduleKind::BlockFlat || kind == ScheduleKind::BlockRows || kind == ScheduleKind::BlockLoop ||
         kind == ScheduleKind::BlockColumns || kind == ScheduleKind::BlockTeam || kind == ScheduleKind::BlockWindow;
}

bool sound(const BlockPlan& p) {
  auto power = [](int64_t n) { return n >= 1 && std::has_single_bit(static_cast<uint64_t>(n)); };
  return power(p.rows) && power(p.columns) && power(p.warps) && p.warps <= 32 && p.turns >= 1 &&
         p.turns <= tile::kMaxStages && p.min_blocks >= 0 && p.min_blocks <= 32 && power(p.steps) && power(p.run) &&
         power(p.shift) && p.reads <= tile::Caching::EvictFirst &&
         int64_t{p.rows} * p.columns <= kMostElements * 32 * p.warps && p.outputs >= 1 && p.outer_outputs >= 1 &&
         p.taps >= 0 && p.taps <= WindowFacts::kMostTaps &&
         (p.taps == 0 || int64_t{p.outputs} * p.outer_outputs * p.columns <= kMostElements);
}

} // namespace

void write_config(BlockPlan& p) {
  each_number(p, [&](const char* name, const auto& v) { p.schedule.config[name] = static_cast<int64_t>(v); });
  p.schedule.config["row_axes"] = bits(p.groups.rows);
  p.schedule.config["column_axes"] = bits(p.groups.columns);
}

std::optional<BlockPlan> plan_of(const BlockFacts& f, const Schedule& schedule) {
  if (!is_block(schedule.kind)) return std::nullopt;
  BlockPlan p;
  p.schedule = schedule;
  bool complete = true;
  auto read = [&](const char* name) {
    auto it = schedule.config.find(name);
    complete = complete && it != schedule.config.end();
    return it == schedule.config.end() ? 0 : it->second;
  };
  each_number(p, [&](const char* name, auto& v) {
    int64_t n = read(name);
    complete = complete && n >= -1 && n <= 1 << 20;
    v = static_cast<std::decay_t<decltype(v)>>(n);
  });
  auto rows = static_cast<uint64_t>(read("row_axes")), columns = static_cast<uint64_t>(read("column_axes"));
  size_t axes = f.d.axes.size() + (p.split >= 0 ? 1 : 0);
  uint64_t all = axes >= 63 ? ~uint64_t{0} : (uint64_t{1} << axes) - 1;
  if (!complete || !sound(p) || (rows & columns) || ((rows | columns) & ~all) || axes > 62) return std::nullopt;
  if (p.split >= static_cast<int>(f.d.axes.size())) return std::nullopt;

  // Row-major within a group, but for the contiguous axis, along which neighbours in memory lie.
  auto role = [&](size_t axis) {
    return f.d.axes[axis - (p.split >= 0 && axis > static_cast<size_t>(p.split) ? 1 : 0)].role;
  };
  for (size_t i = 0; i < axes; ++i)
    (rows >> i & 1 ? p.groups.rows : columns >> i & 1 ? p.groups.columns : p.groups.points).push_back(i);
  for (std::vector<size_t>* group : {&p.groups.rows, &p.groups.columns}) {
    for (size_t axis : *group)
      if (role(axis) != role(group->front())) return std::nullopt;
    auto last = std::find(group->begin(), group->end(), static_cast<size_t>(std::max(0, f.contiguous_axis)));
    if (last != group->end() && role(*last) == AxisRole::Outer) std::rotate(last, last + 1, group->end());
  }
  // Reductions fold along one dimension of the tile, which then holds all of the row's axes.
  // Those of a window are written out.
  for (size_t axis : p.groups.points)
    if ((role(axis) == AxisRole::Row) != (p.taps > 0)) return std::nullopt;
  auto folds = [&](const std::vector<size_t>& g) { return !g.empty() && role(g.front()) == AxisRole::Row; };
  if (folds(p.groups.rows) && folds(p.groups.columns)) return std::nullopt;
  if (p.turns > 1 && (p.loop || p.shift > 1 || !folds(p.groups.columns) || p.groups.rows.empty() ||
                      p.schedule.kind == ScheduleKind::BlockTeam))
    return std::nullopt;
  if (p.schedule.kind != ScheduleKind::BlockTeam) return p;
  const bool along = folds(p.groups.columns);
  if (!along && !folds(p.groups.rows)) return std::nullopt;
  if (along ? p.rows != 1 : !p.loop || p.programs < 1) return std::nullopt;
  auto online = schedule.config.find("online");
  const tile::Caching reads = p.reads;
  share_team(f, p, online == schedule.config.end() || online->second != 0);
  p.reads = reads; // as the schedule says, not the rules
  if (auto members = p.team->as_const(); members && *members < 1) return std::nullopt;
  // Each of those that wait reads what all members of the team have folded.
  const int64_t most = p.waits ? int64_t{kMostElements} * 32 * p.warps : kMostMembers;
  if (p.most_members < 1 || p.most_members > most) return std::nullopt;
  return p;
}

std::optional<BlockPlan> tuned_plan(const BlockFacts& f, const TunedSchedule& tuned) {
  if (tuned.extents.size() != f.d.axes.size()) return std::nullopt;
  auto p = plan_of(f, tuned.schedule);
  if (!p) return std::nullopt;
  auto require = [&](const SymExpr& e, int64_t multiple, int64_t min, int64_t max) {
    SymRange known = f.d.env.range(e);
    if (known.lo > max || known.hi < min) return false;
    if (known.lo < min || known.hi > max) p->conditions.push_back({e, 1, min, max});
    if (multiple <= 1) return true;
    Multiple m = f.multiple(e, multiple);
    if (m.condition) p->conditions.push_back(*m.condition);
    return m.known || m.condition.has_value();
  };
  for (size_t i = 0; i < tuned.extents.size(); ++i) {
    const ExtentRange& r = tuned.extents[i];
    if (!require(f.d.env.simplify(f.extent(i)), r.multiple_of, r.min, r.max)) return std::nullopt;
  }
  // What the plan relies on, whatever the record says.
  const bool along = !p->groups.columns.empty() && f.is_row(p->groups.columns.front());
  if (p->team && p->waits && p->programs > 0) {
    const SymExpr teams = along ? f.d.env.simplify(f.points(AxisRole::Outer)) : column_teams(f, *p);
    if (!require(teams, 1, 1, p->programs)) return std::nullopt;
  }
  if (p->team && along && !require(*p->team, 1, 1, p->most_members)) return std::nullopt;
  if (p->split >= 0 && !require(f.d.env.simplify(f.extent(static_cast<size_t>(p->split))), p->columns, 0, INT64_MAX))
    return std::nullopt;
  if (f.d.reduces && !p->loop && !p->team && p->taps == 0) {
    SymExpr row = f.d.env.simplify(f.d.row_count());
    int64_t lanes = along ? p->columns : p->rows;
    if (lanes == 1 ? !row.is_const(1) : !require(row, 1, 0, lanes - p->shift + 1)) return std::nullopt;
  }
  Domain d = f.d;
  for (const SizeCondition& c : p->conditions) assume(d.env, c);
  if (p->split >= 0 && d.env.divisor(f.extent(static_cast<size_t>(p->split))) % p->columns != 0) return std::nullopt;
  // Under these conditions rows must not all begin at whole accesses.
  if (p->shift > 1) {
    if (p->groups.columns.size() != 1 ||
        !shifted_start(f.graph, f.nest, d, p->groups.columns.front(), p->aligned_at(), p->shift))
      return std::nullopt;
  }
  // A single row begins at a whole access, whatever its length.
  const bool single = f.constant(f.points(AxisRole::Outer)) == 1 && p->groups.columns.size() == 1;
  if (p->run > 1 && p->shift == 1 && f.d.reduces && !single) {
    ShapeEnv env = f.d.env;
    for (const SizeCondition& c : p->conditions) assume(env, c);
    if (env.divisor(f.d.row_count()) % p->run != 0) return std::nullopt;
  }
  return p;
}

} // namespace tessera
