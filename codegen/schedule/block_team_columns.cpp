// Few long columns: whether programs share them, and how wide the pieces of rows are that a team has.
#include "codegen/schedule/block_team_plans.h"
#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kColumnBytes = 256;   // of a row of a column tile
constexpr int64_t kColumnElements = 16; // of a thread's part of one
constexpr int64_t kWaitingBytes = 64;   // of one where programs wait; twice as much of narrow elements
constexpr double kMuchRead = 120e6;     // of 32-bit columns: four times as much, in twice as many threads
constexpr int64_t kFewMembers = 24;     // of which twice as many columns would leave half
constexpr int64_t kColumnBlocks = 8;    // resident on a multiprocessor, of 128 threads
constexpr int64_t kWaitingBlocks = 2;   // of those that wait, of 256 threads or 512
constexpr double kMostlyBusy = 0.8;     // of the programs, of a tile's columns
constexpr double kMostlyWide = 0.85;    // of the columns of those that wait
constexpr double kBusy = 0.9;           // of the programs that have a place in a team

class ColumnTeamPlanner : TeamShares {
public:
  explicit ColumnTeamPlanner(const TeamShares& shares) : TeamShares(shares) {}

  std::vector<BlockPlan> run() {
    down_columns();
    return std::move(plans_);
  }

private:
  // Whether teams are worth their meetings, of `count` columns of `length` elements: a block alone, with few loads
  // under way, takes a tile at a time. Finishing costs more than it seems where there is much to compute, hence the
  // margin.
  [[nodiscard]] bool columns_pay(int64_t length, int64_t count, int64_t rows, int64_t columns, int64_t partials,
                                 int64_t programs) const {
    constexpr double kTileUs = 1.3, kMargin = 1.5, kSmallMargin = 1.1, kLongUs = 30;
    constexpr double kSingle = 770e3, kTeamSingle = 1015e3; // narrow elements accessed one by one, in a us
    const auto rounds = static_cast<double>(rounds_);
    auto ceil = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
    const bool single = !waits_ && single_columns();
    constexpr double kShortPieces = 1.5; // 64 bytes of columns, which a block alone has
    const bool much = waits_ ? f_.narrow >= 4 && f_.read_bytes() >= kMuchRead
                             : f_.narrow <= 2 && total_ / f_.device.memory_bytes_per_us > kLongUs;
    const bool pieces = !single && much;
    auto us = [&](int64_t tiles, double waves, double per_us, double tile) {
      const double elements = single ? static_cast<double>(length * count) / per_us : 0;
      return std::max({(total_ + again_) / f_.device.memory_bytes_per_us,
                       static_cast<double>(tiles) * waves * rounds * tile, elements});
    };
    // Alone: 64 rows of 32 columns, of which eight are resident; with further rounds narrower ones.
    const int64_t blocks = ceil(count, waits_ ? 16 : 32), most = (waits_ ? 4 : kColumnBlocks) * programs_;
    const double waves = std::max(1.0, static_cast<double>(blocks) / static_cast<double>(most));
    const double alone = us(ceil(length, waits_ ? 256 : 64), waves, kSingle, pieces ? kShortPieces * kTileUs : kTileUs);
    const int64_t teams = ceil(count, columns), tiles = ceil(length, rows);
    const int64_t members = std::min({programs / teams, partials / columns, tiles});
    if (members < 2) return false;
    const double shared =
        us(ceil(tiles, members), 1, kTeamSingle, kTileUs) + (waits_ ? 2 : 1) * f_.device.grid_barrier_us;
    const bool certain = single || total_ / f_.device.memory_bytes_per_us > kLongUs;
    return alone > (certain ? kSmallMargin : kMargin) * shared;
  }
  // Narrow columns that are accessed element by element.
  [[nodiscard]] bool single_columns() const {
    const Multiple whole = f_.multiple(f_.extent(static_cast<size_t>(f_.contiguous_axis)), f_.vector);
    return !whole.known && !whole.condition && f_.narrow <= 2;
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
    // Blocks that wait keep much of their share: few, large ones, with long pieces of narrow columns. Others are small.
    const int64_t each = std::min(4 * f_.vector, kColumnElements);
    // Of much that is read no team keeps all, and longer pieces are worth more.
    const bool large = f_.narrow >= 4 && f_.read_bytes() >= kMuchRead;
    const bool narrow_pieces = f_.narrow >= 4 || single_columns();
    const int64_t bytes = large ? 4 * kWaitingBytes : narrow_pieces ? kWaitingBytes : 2 * kWaitingBytes;
    ColumnTeam t =
        waits_ ? ColumnTeam{large ? 512 : 256, std::min(4 * f_.vector, 2 * each), bytes / f_.narrow, kWaitingBlocks, 0}
               : ColumnTeam{128, each, kColumnBytes / f_.narrow, kColumnBlocks, 0};
    const int64_t registers = waits_ ? kRegisters * 5 / 4 : kRegisters;
    while (t.each > 1 && t.each * f_.live + f_.vector * f_.accumulators() > registers) t.each /= 2;
    if (auto w = f_.constant(width)) t.columns = std::min(t.columns, power_above(*w));
    Multiple whole = f_.multiple(f_.extent(c), f_.vector);
    // Of narrow elements that are accessed one by one a warp's part is taller, and fewer blocks meet.
    if (!waits_ && single_columns()) {
      t.threads *= 2;
      t.resident /= 2;
    }
    const int64_t programs = t.resident * programs_;
    t.partials = most_partials(t.threads);
    auto blocks = [&] { return f_.d.env.simplify(ceildiv(width, t.columns) * others); };
    // Where those of long pieces would have few members, pieces of half their length: fewer meet, and sooner.
    if (const auto teams = f_.seen(blocks());
        waits_ && large && teams && programs / std::max<int64_t>(1, *teams) <= kFewMembers)
      t.columns = std::min(t.columns, 2 * kWaitingBytes / f_.narrow);
    // Narrower ones where few would be shared by more members than there are places for what they fold, or the last
    // tile across would be wasted.
    auto idle = [&] {
      const auto teams = f_.seen(blocks()), w = f_.seen(width);
      if (!teams || !w) return false;
      const int64_t across = (*w + t.columns - 1) / t.columns * t.columns;
      return static_cast<double>(*teams * (t.partials / t.columns)) < kMostlyBusy * static_cast<double>(programs) ||
             static_cast<double>(*w) < (waits_ ? kMostlyWide : kMostlyBusy) * static_cast<double>(across);
    };
    while (t.columns * f_.narrow > f_.device.sector_bytes && t.columns > 2 && idle()) t.columns /= 2;
    const int64_t rows = std::max<int64_t>(2, t.threads * t.each / t.columns);
    auto n = f_.constant(row_), count = f_.constant(points_);
    std::vector<SizeCondition> conditions;
    if (n && count) {
      if (*n < 2 * rows || *count < 1 || !columns_pay(*n, *count, rows, t.columns, t.partials, programs)) return;
    } else if (auto found = few_and_long(t.columns * programs_ / 2, 16 * rows)) {
      conditions = std::move(*found);
    } else {
      return;
    }
    // Wider ones where teams, which have equally many members, leave programs without a place in one.
    if (auto w = f_.constant(width), o = f_.constant(others); waits_ && w && o) {
      constexpr double kBusier = 1.1;
      auto busy = [&](int64_t columns) {
        const int64_t teams = (*w + columns - 1) / columns * *o;
        const int64_t members = std::min(programs / std::max<int64_t>(1, teams), t.partials / columns);
        return static_cast<double>(teams * members) / static_cast<double>(programs);
      };
      while (2 * t.columns * f_.narrow <= kColumnBytes && busy(t.columns) < kBusy &&
             busy(2 * t.columns) > kBusier * busy(t.columns))
        t.columns *= 2;
    }
    BlockPlan p = column_team(groups, t);
    if (!waits_ && whole.known) p.reads = f_.reads(false);
    if (auto known = p.team->as_const(); known && *known < 2) return;
    p.conditions = conditions;
    if (waits_ && !count) p.conditions.push_back({blocks(), 1, 1, programs / 2});
    p.schedule.why = "few columns, of " + row_.str() + " each, contiguous along " + f_.extent_text(c);
    if (whole.condition) {
      plans_.push_back(p);
      plans_.back().conditions.push_back(*whole.condition);
    }
    plans_.push_back(std::move(p));
  }

  std::vector<BlockPlan> plans_;
};

} // namespace

std::vector<BlockPlan> column_team_plans(const TeamShares& shares) { return ColumnTeamPlanner(shares).run(); }

} // namespace tessera
