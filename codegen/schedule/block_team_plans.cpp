// Few long rows: how many programs share each, and when.
//
// A multiprocessor reads some 40 GB/s by itself, all of them together 4.4 TB/s. Rows that are fewer than the
// multiprocessors leave the others idle; a team for each costs a meeting, some microseconds. Where nobody waits
// (results of the row alone) there may be as many programs as there are tiles. Programs that wait must all be resident.
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"
#include <algorithm>
#include <array>
#include <cmath>

namespace tessera {
namespace {

// Of an H200.
constexpr double kBytesPerUsAlone = 40e3, kBytesPerUs = 4.4e6, kCachedBytesPerUs = 9e6, kMeetingUs = 2;
constexpr int64_t kLeastBytes = 16 << 10;   // of a program's share
constexpr double kHeldBytes = 8e6;          // moved, from which on what programs that wait have read is to last
constexpr int64_t kMostPartials = 8192;     // and where each has several
constexpr int64_t kShots = 4;               // waves of programs of a tile each, at least
constexpr int64_t kTeamRowBytes = 64 << 10; // what a block could hold is shared from here on
constexpr double kMuchKept = 0.75;          // of rows of several narrow streams, which a block alone does not hold
constexpr double kMostlyKept = 0.85;        // of a row, so that reading the rest again is nothing
constexpr int64_t kColumnBytes = 256;       // of a row of a column tile
constexpr int64_t kColumnElements = 16;     // of a thread's part of one
constexpr int64_t kWaitingBytes = 64;       // of one where programs wait; twice as much of narrow elements
constexpr double kMuchRead = 120e6;         // of 32-bit columns: four times as much, in twice as many threads
constexpr int64_t kFewMembers = 24;         // of which twice as many columns would leave half
constexpr int64_t kSectorBytes = 32;        // narrower ones waste what memory moves
constexpr int64_t kPartialRegisters = 32;   // of a thread that waits, for what its team has folded
constexpr int64_t kColumnBlocks = 8;        // resident on a multiprocessor, of 128 threads
constexpr int64_t kWaitingBlocks = 2;       // of those that wait, of 256 threads or 512
constexpr double kMostlyBusy = 0.8;         // of the programs, of a tile's columns
constexpr double kMostlyWide = 0.85;        // of the columns of those that wait
constexpr double kBusy = 0.9;               // of the programs that run at a time, where all have a part of a row

class TeamPlanner {
public:
  TeamPlanner(const BlockFacts& facts, bool online)
      : f_(facts), online_(online), row_(f_.d.env.simplify(f_.d.row_count())), points_(f_.points(AxisRole::Outer)),
        programs_(f_.device.multiprocessors) {}

  std::vector<BlockPlan> run() {
    if (!find_rounds()) return {};
    for (const Stream& s : f_.streams) {
      total_ += s.count * s.bytes;
      if (!s.store) again_ += s.count * s.bytes * static_cast<double>(rounds_ - 1);
    }
    const bool rows = f_.is_row(static_cast<size_t>(f_.contiguous_axis));
    rows ? along_rows() : down_columns();
    for (BlockPlan& p : plans_) {
      p.waits = waits_;
      p.schedule.why += "; " + BlockFacts::sizes(p) + ", " + f_.d.env.simplify(*p.team).str() + " programs a row" +
                        (waits_ ? ", which wait for each other" : ", of which the last one finishes");
    }
    return std::move(plans_);
  }

  // Whether there is anything to fold; who needs it decides whether programs wait.
  bool find_rounds() {
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
    rounds_ = rounds + (last + 1 < stages.stages.size());
    waits_ = rounds > 1 || last + 1 < stages.stages.size();
    return rounds > 0;
  }

  [[nodiscard]] int64_t most_partials(int64_t threads) const {
    return waits_ ? power_below(threads * kPartialRegisters / static_cast<int64_t>(states_)) : kMostPartials;
  }
  // What `team` of a plan is, whether its members wait, and what follows from how much of their row they keep.
  void share(BlockPlan& p) const {
    const bool rows = f_.is_row(p.groups.columns.front());
    rows ? share_row(p) : share_columns(p);
    if (rows && waits_) {
      p.reads = f_.reads(true, kHeldBytes);
      if (p.reads == tile::Caching::Lasting && holds_much(p)) p.reads = tile::Caching::Passing;
    }
    p.waits = waits_;
    p.most_members = f_.constant(*p.team).value_or(p.most_members);
    p.messages = waits_ && rows && p.most_members <= most_told(p);
  }
  // Messages are the square of the members. While others' loads and stores are under way the last of many is late.
  [[nodiscard]] int64_t most_told(const BlockPlan& p) const {
    constexpr int64_t kMost = 128;
    const auto grid = f_.constant(f_.d.env.simplify(points_ * *p.team));
    const bool alone = p.programs > 0 || (grid && *grid <= p.min_blocks * f_.device.multiprocessors);
    return std::min(alone ? kMost : kToldBesideOthers, int64_t{32} * p.warps);
  }
  // As many members as there are programs for a team, tiles for a member, and places for what they fold.
  void share_columns(BlockPlan& p) const {
    SymExpr team = sym_min(floordiv(p.programs, column_teams(f_, p)), p.most_members);
    team = sym_min(team, ceildiv(row_, p.rows));
    p.team = f_.d.env.simplify(waits_ ? team : sym_max(team, 1));
  }
  // A tile each; or what all teams together may have; or as many as hold the row, all but what its alignment adds.
  void share_row(BlockPlan& p) const {
    const SymExpr places = row_ + SymExpr(p.shift - 1);
    SymExpr team = ceildiv(places, p.loop ? (int64_t{p.keep} + 1) * p.columns : p.columns);
    if (p.loop && p.programs > 0) {
      team = floordiv(p.programs, points_);
      if (!waits_) team = sym_min(ceildiv(row_, p.columns), team);
    }
    p.team = f_.d.env.simplify(team);
  }
  [[nodiscard]] BlockPlan column_team(const AxisGroups& groups, const ColumnTeam& t) const {
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

  [[nodiscard]] BlockPlan row_team(const RowTeam& t) const {
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockTeam, 1, t.threads * t.each, t.threads / 32);
    p.groups = f_.row_groups();
    p.loop = t.loop;
    p.shift = t.shift;
    p.run = static_cast<int>(t.vectors ? std::min<int64_t>(t.each, kAccessBytes / f_.usual) : 1);
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
    return p;
  }
  // What the messages of a large team take is not there for tiles, and what all members have has not to be.
  void keep_fitting(BlockPlan& p, int64_t resident) const {
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
  [[nodiscard]] int64_t exchange(const BlockPlan& p) const {
    return 2 * state_bytes_ * p.warps + state_bytes_ * power_above(p.most_members);
  }

private:
  // Shifted rows of 16 bits, nothing of which is read again, and of which a multiprocessor holds so much that what it
  // has read need not last in the L2: it would only be in the way of what is written.
  [[nodiscard]] bool holds_much(const BlockPlan& p) const {
    constexpr int64_t kMuch = 96 << 10; // bytes
    if (!p.loop || p.shift == 1 || f_.usual != 2) return false;
    const auto n = f_.constant(row_), members = f_.constant(*p.team);
    const int64_t share = (int64_t{p.keep} + 1) * p.columns;
    return n && members && *members * share >= *n + p.shift - 1 && share * kept_bytes_ * p.min_blocks >= kMuch;
  }
  // Tiles of `elements` that fit a block's share of shared memory, beside what its warps `exchange`.
  [[nodiscard]] int kept_tiles(int64_t elements, int64_t resident,
                               int64_t exchange = BlockFacts::kExchangeBytes) const {
    return waits_ ? static_cast<int>(f_.tiles_in_shared(elements, kept_bytes_, resident, exchange)) : 0;
  }
  // Time of `programs` that each read and write as much, a part `kept` of what is read again never leaving them.
  [[nodiscard]] double us(double programs, double kept) const {
    const double full = static_cast<double>(programs_);
    double each = programs / std::ceil(programs / full); // multiprocessors that work, on the average
    double rate = std::min(kBytesPerUs, each * kBytesPerUsAlone);
    double faster = again_ > BlockFacts::kCacheBytes ? 1 : kCachedBytesPerUs / kBytesPerUs;
    return total_ / rate + again_ * (1 - kept) / (rate * faster);
  }
  // Whether a team is worth its meeting, where `blocks` programs would work without, and keep a part `alone`; sizes
  // are known.
  [[nodiscard]] bool pays(double blocks, double alone, double programs, double kept, bool long_enough) const {
    // What a block holds alone it reads first, and then stores: slower, but where there are blocks for nearly all.
    constexpr double kAlternating = 1.6, kNearlyAll = 0.8;
    const bool slow = alone > 0 && blocks < kNearlyAll * static_cast<double>(programs_) && long_enough;
    const double meetings = (waits_ && long_enough && row_axes() == 1 ? 1 : 2) * kMeetingUs;
    return us(blocks, alone) * (slow ? kAlternating : 1) > us(programs, kept) + meetings;
  }
  // The part of a row of `length` elements that a block keeps by itself where each has a multiprocessor.
  [[nodiscard]] double kept_alone(int64_t length, int64_t count) const {
    if (!waits_ || count > programs_) return 0;
    const BlockPlan p = row_plans(f_, online_).front();
    if (!p.loop) return 1;
    if (p.keep == 0) return 0;
    return std::min(1.0, (p.keep + 1.0) * p.columns / static_cast<double>(length));
  }
  // The same for columns, `count` of `length` elements: a block, with few loads under way, takes a tile at a time.
  // Finishing costs more than it seems where there is much to compute, hence the margin.
  [[nodiscard]] bool columns_pay(int64_t length, int64_t count, int64_t rows, int64_t columns, int64_t partials,
                                 int64_t programs) const {
    constexpr double kTileUs = 1.3, kMargin = 1.5, kSmallMargin = 1.1, kLongUs = 30;
    constexpr double kSingle = 770e3, kTeamSingle = 1015e3; // narrow elements accessed one by one, in a us
    const auto rounds = static_cast<double>(rounds_);
    auto ceil = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
    const bool single = !waits_ && single_columns();
    constexpr double kShortPieces = 1.5; // 64 bytes of columns, which a block alone has
    const bool much =
        waits_ ? f_.narrow >= 4 && f_.read_bytes() >= kMuchRead : f_.narrow <= 2 && total_ / kBytesPerUs > kLongUs;
    const bool pieces = !single && much;
    auto us = [&](int64_t tiles, double waves, double per_us, double tile) {
      const double elements = single ? static_cast<double>(length * count) / per_us : 0;
      return std::max({(total_ + again_) / kBytesPerUs, static_cast<double>(tiles) * waves * rounds * tile, elements});
    };
    // Alone: 64 rows of 32 columns, of which eight are resident; with further rounds narrower ones.
    const int64_t blocks = ceil(count, waits_ ? 16 : 32), most = (waits_ ? 4 : kColumnBlocks) * programs_;
    const double waves = std::max(1.0, static_cast<double>(blocks) / static_cast<double>(most));
    const double alone = us(ceil(length, waits_ ? 256 : 64), waves, kSingle, pieces ? kShortPieces * kTileUs : kTileUs);
    const int64_t teams = ceil(count, columns), tiles = ceil(length, rows);
    const int64_t members = std::min({programs / teams, partials / columns, tiles});
    if (members < 2) return false;
    const double shared = us(ceil(tiles, members), 1, kTeamSingle, kTileUs) + (waits_ ? 2 : 1) * kMeetingUs;
    const bool certain = single || total_ / kBytesPerUs > kLongUs;
    return alone > (certain ? kSmallMargin : kMargin) * shared;
  }
  // Narrow columns that are accessed element by element.
  [[nodiscard]] bool single_columns() const {
    const Multiple whole = f_.multiple(f_.extent(static_cast<size_t>(f_.contiguous_axis)), f_.vector);
    return !whole.known && !whole.condition && f_.narrow <= 2;
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

  // Blocks of so many threads, of which so many are to be on a multiprocessor, with so many elements a thread.
  struct Blocks {
    int64_t threads, resident, each;
    int64_t keep = kAllTiles;
    bool ahead = true;
    [[nodiscard]] int64_t tile() const { return threads * each; }
  };

  // Of rows that are not shifted: beside values, which take 32 bits as they are compared.
  [[nodiscard]] bool wide_positions(int shift) const { return positions_ && f_.usual > 1 && shift == 1; }
  // Whether rows of n elements are just about what teams of such blocks hold, all rows at a time.
  [[nodiscard]] bool fills(const Blocks& b, int64_t n, int64_t count) const {
    constexpr double kFull = 0.95;
    const int64_t all = b.resident * programs_, tiles = (n + b.tile() - 1) / b.tile();
    if (count < 1 || 2 * count > all || tiles < 2) return false;
    const int64_t most = all / count, share = (tiles + most - 1) / most;
    if (share > kept_tiles(b.tile(), b.resident) + 1) return false;
    const int64_t used = count * ((tiles + share - 1) / share);
    return static_cast<double>(used) >= kFull * static_cast<double>(all) &&
           static_cast<double>(count * n) >= kFull * static_cast<double>(used * share * b.tile());
  }

  void along_rows() {
    auto n = f_.constant(row_), count = f_.constant(points_);
    const int64_t vector = kAccessBytes / f_.usual;
    Multiple whole = f_.multiple(f_.extent(static_cast<size_t>(f_.contiguous_axis)), vector);
    if (whole.condition && !f_.implies(*whole.condition, row_, vector)) whole.condition.reset();
    // A thread's neighbours in a tile: as many as one access of theirs takes, or elements would change threads between
    // being loaded and being folded. A single row begins at a whole access, whatever its length.
    const bool aligned = whole.known || (count && *count == 1 && row_axes() == 1);
    const int shift = aligned ? 1 : row_shift(f_, true); // of rows of any length
    // Blocks that wait: 1024 threads on a multiprocessor in all, in small ones where a thread has few registers' worth
    // to remember.
    Blocks b{512, waits_ ? 2 : 4, (waits_ ? 2 : 4) * vector};
    if (waits_ && kept_bytes_ <= 2) b = {256, 4, 2 * vector};
    auto shifted = [&](Blocks b) { // masks take registers
      if (shift > 1) b.each = std::min(b.each, waits_ ? kShiftedElements : 2 * vector);
      return b;
    };
    if (f_.divides() || f_.usual == 1) b.each = vector;
    if (f_.divides()) b.threads = 256;
    // So do those of a last access that is cut.
    if (!waits_ && n && f_.usual == 2 && *n % vector != 0) b.each = std::min(b.each, 2 * vector);
    const bool cut = !waits_ && n && f_.usual == 4 && *n % vector != 0 && count && *count == 1 && states_ == 1;
    if (cut) b = {256, 4, b.each};
    b.each = f_.fitting(b.each);
    if (waits_ && kept_bytes_ <= 2 && f_.usual == 2 && f_.loaded_streams() == 1 && whole.known && n && count)
      if (const Blocks large{512, 2, f_.fitting(4 * vector)}; large.each == 4 * vector && fills(large, *n, *count))
        b = large;
    if (!whole.condition) b = shifted(b);
    // Shifted rows of one 32-bit stream, of which a block has a few tiles: fewer threads, each with more of one at
    // once.
    constexpr int64_t kFewTiles = 4;
    if (const Blocks few{256, 2, f_.fitting(4 * vector), kAllTiles, false};
        waits_ && n && count && *count > 0 && shift > 1 && f_.usual == 4 && f_.loaded_bytes() == 4 &&
        few.tile() == b.tile() && few.resident == b.resident) {
      const int64_t tiles = (*n + shift - 1 + few.tile() - 1) / few.tile();
      const int64_t team = std::max<int64_t>(1, few.resident * programs_ / *count);
      if (tiles > team && tiles <= kFewTiles * team) b = few;
    }
    // Smaller blocks where so few large ones are a row's share that many have none.
    auto busy = [&](int64_t resident) {
      const int64_t all = resident * programs_;
      return static_cast<double>(all / *count * *count) / static_cast<double>(all);
    };
    if (waits_ && n && count && *count > 0 && shift > 1 && !whole.condition)
      for (Blocks less = b; less.threads > 128 && busy(b.resident) < kBusy;) {
        less = {less.threads / 2, 2 * less.resident, less.each};
        if (busy(less.resident) > busy(b.resident)) b = less;
      }
    const int64_t resident = b.resident * programs_;
    // `programs`: of all teams together; 0: as many for each as its row takes.
    auto add = [&](const Blocks& b, int64_t programs, int64_t members, bool loop, const std::string& why,
                   const std::vector<SizeCondition>& when) {
      auto make = [&](const Blocks& b, bool vectors, int shift) {
        // Elements of a byte become a register each: they need what they need.
        const int64_t most = cut || wide_positions(shift) || (states_ > 1 && shift > 1) ? b.resident : 2048 / b.threads,
                      blocks = waits_                          ? b.resident
                               : f_.divides() || f_.usual == 1 ? 0
                                                               : most;
        plans_.push_back(
            row_team({b.threads, b.each, blocks, programs, members, shift, loop, vectors, b.keep, b.ahead}));
        plans_.back().conditions = when;
        plans_.back().schedule.why = why;
      };
      if (whole.condition) {
        make(b, true, 1);
        plans_.back().conditions.push_back(*whole.condition);
        if (!loop) return; // rows of any length take the loop
      }
      make(whole.condition ? shifted(b) : b, aligned || shift > 1, shift);
    };
    const std::string few = "few rows of " + row_.str();
    // Who does not wait leaves rows alone that keep half of the multiprocessors busy.
    const int64_t most = waits_ ? programs_ : programs_ / 2, least = kLongRowBytes / std::max(1, element_);
    std::vector<SizeCondition> conditions;
    if (n && count) {
      if (*n < 2 || *count < 1) return;
      const int64_t tile = b.tile();
      const auto rows = static_cast<double>(*count), tiles = static_cast<double>((*n + tile - 1) / tile);
      const double team = std::min(tiles, std::floor(static_cast<double>(resident) / rows));
      const double kept = std::min(1.0, (kept_tiles(tile, b.resident) + 1) * team / tiles);
      const double alone = kept_alone(*n, *count);
      // Of several streams, which a block alone does not hold, a few more.
      const double much = f_.usual > 2 ? kMostlyKept : kMuchKept;
      const bool several = waits_ && shift > 1 && f_.loaded_streams() > 1 && kept >= much && team >= 2 && *count > most;
      const bool at_once = *count <= (several ? 2 * most : most) &&
                           pays(rows, alone, rows * team, waits_ ? kept : 0, *n * f_.loaded_bytes() >= kTeamRowBytes);
      if (!at_once && alone >= 1) return;
      const auto held = waits_ ? held_team(f_, *n + shift - 1, aligned, online_) : std::nullopt;
      // Of many 32-bit rows with masks a tile a member, whose masks are not made again.
      const bool tiles_each = held && held->keep == 0 && f_.masks() && !f_.narrow_masks() && 2 * *count > programs_;
      if (held && (tiles_each || !(at_once && kept >= (several ? much : kMostlyKept))))
        return add({held->threads, held->resident, held->each, held->keep, held->ahead}, 0, 0, held->keep > 0,
                   "each row of " + row_.str() + " is held by its programs", {});
      if (!at_once) return;
    } else if (auto found = few_and_long(most, least)) {
      conditions = std::move(*found);
    } else {
      return;
    }
    if (!waits_) {
      // Masks and several numbers of a row take more than the 32 registers that 2048 threads leave.
      if (n && count && shift > 1 && states_ > 1 && f_.usual == 2 && !f_.divides()) {
        b = {128, 8, 2 * vector};
        return add(b, b.resident * programs_, b.resident * programs_, true, few, conditions);
      }
      // Values and their positions take more than the 32 registers that 2048 threads leave.
      if (n && count && wide_positions(shift)) b = {256, 4, b.each};
      // Sums of much: a tile each, which costs the least that a program can, if it is not masked element by element.
      const Blocks shot{1024, 2, 4 * vector};
      if (n && count && whole.known && f_.usual == 4 && f_.live <= 2 && states_ == 1) {
        const int64_t tiles = (*n + shot.tile() - 1) / shot.tile();
        if (*count * tiles >= kShots * shot.resident * programs_ && tiles <= kMostPartials)
          return add(shot, 0, tiles, false, few, conditions);
      }
      if (n && count)
        while (b.threads > 128 && b.tile() * element_ > kLeastBytes &&
               *count * ((*n + b.tile() - 1) / b.tile()) < 2 * programs_)
          b.threads /= 2;
      // As many as run at a time: one that begins later has its own beginning and end to wait for.
      const int64_t members = b.resident * programs_;
      return add(b, members, members, true, few, conditions);
    }
    // Shares that fit the registers; then those that are read once a round.
    const std::string in_registers = few + ", each program's share in registers";
    if (n && count) {
      const int64_t places = *n + shift - 1;
      Blocks once = b;
      // Shifted rows by small blocks: what their ends leave idle is less.
      if (shift > 1 && once.threads > 256) once = {256, once.resident * once.threads / 256, once.each};
      auto tiles = [&](const Blocks& b) { return (places + b.tile() - 1) / b.tile(); };
      const int64_t most = once.resident * programs_, access = aligned || shift > 1 ? vector : 1;
      while (once.each > access && 2 * *count * tiles(once) <= most) once.each /= 2;
      // Of narrow elements that nothing stands beside a thread has room for more.
      if (const Blocks large{128, 8, f_.fitting(32)}; shift > 1 && f_.usual == 2 && f_.lean() &&
                                                      *count * tiles(once) > most &&
                                                      *count * tiles(large) <= 8 * programs_)
        return add(large, 0, 8 * programs_, false, in_registers, conditions);
      // So has it of masks beside them, or beside 32 bits.
      if (const Blocks masked{256, 4, f_.fitting(32)}; shift == 1 && f_.masks() && masked.each == 32 &&
                                                       *count * tiles(once) > most &&
                                                       *count * tiles(masked) <= 4 * programs_)
        return add(masked, 0, 4 * programs_, false, in_registers, conditions);
      if (*count * tiles(once) <= most) return add(once, 0, most, false, in_registers, conditions);
    } else {
      SymExpr tiles = ceildiv(row_, b.tile());
      auto fits = conditions;
      fits.push_back({f_.d.env.simplify(points_ * tiles), 1, 1, resident});
      add(b, 0, resident, false, in_registers, std::move(fits));
    }
    add(b, resident, resident, true, few, conditions);
  }

  [[nodiscard]] size_t row_axes() const {
    size_t n = 0;
    for (size_t i = 0; i < f_.d.axes.size(); ++i) n += f_.is_row(i);
    return n;
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
    while (t.columns * f_.narrow > kSectorBytes && t.columns > 2 && idle()) t.columns /= 2;
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

  const BlockFacts& f_;
  const bool online_;
  const SymExpr row_, points_;
  const int64_t programs_;
  bool waits_ = false;
  size_t states_ = 1;            // numbers of a row that a round folds, at most
  int64_t state_bytes_ = 4;      // and what they take
  bool positions_ = false;       // one of them is a position, as an argmax's
  size_t rounds_ = 0;            // over the row, that of the elements included
  double total_ = 0, again_ = 0; // bytes; of those that rounds after the first read
  int element_ = 0;              // bytes of all large streams
  int kept_bytes_ = 0;           // of an element, that rounds after the first need of it
  std::vector<BlockPlan> plans_;
};

} // namespace

std::vector<BlockPlan> team_plans(const BlockFacts& facts, bool online) { return TeamPlanner(facts, online).run(); }

SymExpr column_teams(const BlockFacts& f, const BlockPlan& p) {
  SymExpr width = 1, others = 1;
  for (size_t i : p.groups.columns) width *= f.extent(i);
  for (size_t i : p.groups.points) others *= f.extent(i);
  return f.d.env.simplify(ceildiv(width, p.columns) * others);
}
BlockPlan column_team(const BlockFacts& facts, const AxisGroups& groups, const ColumnTeam& team, bool online) {
  TeamPlanner planner(facts, online);
  static_cast<void>(planner.find_rounds());
  return planner.column_team(groups, team);
}
BlockPlan row_team(const BlockFacts& facts, const RowTeam& team, bool online) {
  TeamPlanner planner(facts, online);
  static_cast<void>(planner.find_rounds());
  return planner.row_team(team);
}
void share_team(const BlockFacts& facts, BlockPlan& plan, bool online) {
  TeamPlanner planner(facts, online);
  static_cast<void>(planner.find_rounds());
  planner.share(plan);
}
int64_t most_partials(const BlockFacts& facts, int64_t threads, bool online) {
  TeamPlanner planner(facts, online);
  static_cast<void>(planner.find_rounds());
  return planner.most_partials(threads);
}

} // namespace tessera
