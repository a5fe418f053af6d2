// Few long rows: how many programs share each, and when.
//
// A multiprocessor reads some 40 GB/s by itself, all of them together 4.4 TB/s. Rows that are fewer than the
// multiprocessors leave the others idle; a team for each costs a meeting, some microseconds. Where nobody waits
// (results of the row alone) there may be as many programs as there are tiles. Programs that wait must all be resident.
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/online.h"
#include <algorithm>

namespace tessera {
namespace {

// Of an H200.
constexpr double kBytesPerUsAlone = 40e3, kBytesPerUs = 4.4e6, kMeetingUs = 2;
constexpr int64_t kLeastBytes = 16 << 10;    // of a program's share
constexpr int64_t kLongRowBytes = 256 << 10; // rows of unknown length are shared from here on
constexpr int64_t kMostMembers = 4096;       // whose partial results one program folds
constexpr int64_t kMostPartials = 8192;      // and where each has several
constexpr int64_t kColumnBytes = 256;        // of a row of a column tile

class TeamPlanner {
public:
  TeamPlanner(const BlockFacts& facts, bool online)
      : f_(facts), online_(online), row_(f_.d.env.simplify(f_.d.row_count())), points_(f_.points(AxisRole::Outer)),
        programs_(f_.device.multiprocessors) {}

  std::vector<BlockPlan> run() {
    if (!find_rounds()) return {};
    for (const Stream& s : f_.streams) {
      total_ += s.count * s.bytes;
      if (s.count >= f_.largest / 2) element_ += s.bytes;
    }
    bool rows = f_.is_row(static_cast<size_t>(f_.contiguous_axis));
    rows ? along_rows() : down_columns();
    for (BlockPlan& p : plans_) {
      p.waits = waits_;
      p.schedule.why += "; " + BlockFacts::sizes(p) + ", " + f_.d.env.simplify(*p.team).str() + " programs a row" +
                        (waits_ ? ", which wait for each other" : ", of which the last one finishes");
    }
    return std::move(plans_);
  }

private:
  // Whether there is anything to fold; who needs it decides whether programs wait.
  bool find_rounds() {
    Domain domain = f_.d;
    if (online_) (void)find_online(f_.nest, domain);
    Stages stages = plan_stages(f_.nest, domain);
    size_t rounds = 0, last = 0;
    for (size_t s = 0; s < stages.stages.size(); ++s) {
      if (stages.stages[s].reduces.empty()) continue;
      ++rounds;
      last = s;
    }
    waits_ = rounds > 1 || last + 1 < stages.stages.size();
    return rounds > 0;
  }

  // Whether a team is worth its meetings, where `blocks` programs would work without; sizes are known.
  [[nodiscard]] bool pays(double blocks) const {
    double best = total_ / kBytesPerUs;
    double alone = total_ / std::min(kBytesPerUs, blocks * kBytesPerUsAlone);
    return alone > best + 2 * kMeetingUs;
  }
  // Conditions for at most `most` teams of rows of at least `least` elements; nothing where they never hold.
  [[nodiscard]] std::optional<std::vector<SizeCondition>> few_and_long(int64_t most, int64_t least) const {
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

  void along_rows() {
    AxisGroups groups;
    for (size_t i = 0; i < f_.d.axes.size(); ++i) (f_.is_row(i) ? groups.columns : groups.rows).push_back(i);
    auto n = f_.constant(row_), count = f_.constant(points_);
    const int64_t most = programs_ / 2, least = kLongRowBytes / std::max(1, element_);
    std::vector<SizeCondition> conditions;
    if (n && count) {
      if (*n < 2 || *count < 1 || !pays(static_cast<double>(*count)) || *count > most) return;
    } else if (auto found = few_and_long(most, least)) {
      conditions = std::move(*found);
    } else {
      return;
    }
    constexpr int64_t kResident = 2; // blocks that wait, on a multiprocessor
    const int64_t vector = kAccessBytes / f_.usual, resident = kResident * programs_;
    Multiple whole = f_.multiple(f_.extent(static_cast<size_t>(f_.contiguous_axis)), vector);
    auto add = [&](int64_t threads, int64_t each, const SymExpr& team, int64_t members, bool loop,
                   std::vector<SizeCondition> when) {
      BlockPlan p = BlockFacts::plan(ScheduleKind::BlockTeam, 1, threads * each, threads / 32);
      p.groups = groups;
      p.team = f_.d.env.simplify(team);
      p.most_members = f_.constant(*p.team).value_or(members);
      p.loop = loop;
      p.steps = static_cast<int>(std::max<int64_t>(1, each / vector));
      p.conditions = std::move(when);
      if (waits_) p.min_blocks = kResident;
      p.schedule.why = "few rows of " + row_.str() + (loop ? "" : ", each program's share in registers");
      if (whole.condition) {
        plans_.push_back(p);
        plans_.back().conditions.push_back(*whole.condition);
        if (!loop) return; // rows of any length take the loop
        p.steps = static_cast<int>(each);
      }
      plans_.push_back(std::move(p));
    };
    int64_t threads = f_.divides() ? 256 : 512, each = f_.divides() ? vector : 4 * vector;
    while (each > 1 && each * f_.live + vector * f_.accumulators() > kRegisters * 5 / 4) each /= 2;
    SymExpr tiles = ceildiv(row_, threads * each);
    if (!waits_) {
      if (n && count) {
        while (threads > 128 && threads * each * element_ > kLeastBytes &&
               *count * ((*n + threads * each - 1) / (threads * each)) < 2 * programs_)
          threads /= 2;
        tiles = ceildiv(row_, threads * each);
      }
      int64_t members = std::max<int64_t>(2, kMostMembers / std::max<int64_t>(1, count ? *count : most));
      return add(threads, each, sym_min(tiles, members), members, true, conditions);
    }
    // Shares that fit the registers; then those that are read once a round.
    if (n && count) {
      while (each > 1 && 2 * *count * ((*n + threads * each - 1) / (threads * each)) <= resident) each /= 2;
      tiles = ceildiv(row_, threads * each);
      if (*count * *f_.constant(tiles) <= resident) return add(threads, each, tiles, resident, false, conditions);
    } else {
      auto fits = conditions;
      fits.push_back({f_.d.env.simplify(points_ * tiles), 1, 1, resident});
      add(threads, each, tiles, resident, false, std::move(fits));
    }
    add(threads, each, floordiv(resident, points_), resident, true, conditions);
  }

  void down_columns() {
    const auto c = static_cast<size_t>(f_.contiguous_axis);
    AxisGroups groups;
    const bool narrow = f_.guess(f_.extent(c)) < 32; // short columns of several points side by side
    SymExpr width = 1, others = 1;
    for (size_t i = 0; i < f_.d.axes.size(); ++i) {
      if (f_.is_row(i)) {
        groups.rows.push_back(i);
      } else {
        (i == c || narrow ? width : others) *= f_.extent(i);
        if (i != c) (narrow ? groups.columns : groups.points).push_back(i);
      }
    }
    groups.columns.push_back(c);
    int64_t threads = 256, each = 4 * f_.vector, columns = kColumnBytes / f_.narrow;
    while (each > 1 && each * f_.live + f_.vector * f_.accumulators() > kRegisters) each /= 2;
    if (auto w = f_.constant(width)) columns = std::min(columns, power_above(*w));
    int64_t rows = std::max<int64_t>(2, threads * each / columns);
    auto n = f_.constant(row_), count = f_.constant(points_);
    std::vector<SizeCondition> conditions;
    if (n && count) {
      if (*n < 2 * rows || *count < 1 || !pays(static_cast<double>(*count) / 16)) return;
    } else if (auto found = few_and_long(columns * programs_ / 2, 16 * rows)) {
      conditions = std::move(*found);
    } else {
      return;
    }
    SymExpr teams = f_.d.env.simplify(ceildiv(width, columns) * others);
    constexpr int64_t kResident = 4; // on a multiprocessor
    int64_t programs = (waits_ ? 1 : 2) * kResident * programs_;
    int64_t members = kMostPartials / columns;
    SymExpr team = sym_min(sym_min(floordiv(programs, teams), members), ceildiv(row_, rows));
    team = f_.d.env.simplify(waits_ ? team : sym_max(team, 1));
    if (auto known = team.as_const(); known && *known < 2) return;
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockTeam, rows, columns, threads / 32);
    p.groups = groups;
    p.loop = true;
    p.team = team;
    p.most_members = f_.constant(team).value_or(members);
    p.min_blocks = kResident;
    p.steps = static_cast<int>(std::min(std::max<int64_t>(1, each / f_.vector), rows / 2));
    p.conditions = conditions;
    if (waits_ && !count) p.conditions.push_back({teams, 1, 1, programs / 2});
    p.schedule.why = "few columns, of " + row_.str() + " each, contiguous along " + f_.extent_text(c);
    Multiple whole = f_.multiple(f_.extent(c), f_.vector);
    if (whole.condition) {
      plans_.push_back(p);
      plans_.back().conditions.push_back(*whole.condition);
    }
    plans_.push_back(std::move(p));
  }

  const BlockFacts& f_;
  const bool online_;
  const SymExpr row_, points_;
  const int64_t programs_;
  bool waits_ = false;
  double total_ = 0; // bytes
  int element_ = 0;  // bytes of all large streams
  std::vector<BlockPlan> plans_;
};

} // namespace

std::vector<BlockPlan> team_plans(const BlockFacts& facts, bool online) { return TeamPlanner(facts, online).run(); }

} // namespace tessera
