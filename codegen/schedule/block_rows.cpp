// Reductions along a contiguous row by blocks of threads: whole rows in registers, and loops over long ones.
#include "codegen/schedule/block_facts.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr int64_t kRegisterFile = 64 << 10; // registers of a multiprocessor
constexpr int64_t kShortRowBytes = 2 << 10; // one warp's, without a shift
// Rows of unknown length: kernels for rows up to so many elements, and whether only for rows of whole 16-byte accesses.
// Two loops over the row, for whole accesses and for any length, come after them.
struct RowBound {
  int64_t elements;
  bool aligned;
};
constexpr RowBound kRowBounds[] = {{256, true}, {512, true}, {1024, true}, {4096, true}, {1024, false}};
class RowPlanner {
public:
  RowPlanner(const BlockFacts& facts, bool online) : f_(facts), online_(online), vector_(row_vector(facts)) {}

  // Along a contiguous row.
  std::vector<BlockPlan> rows() {
    SymExpr row = f_.d.env.simplify(f_.d.row_count());
    auto add = [&](BlockPlan p, const std::string& why) {
      p.schedule.why = why + "; " + BlockFacts::sizes(p);
      if (!p.loop)
        p.schedule.why += ", " + std::to_string(p.rows) + (p.rows == 1 ? " row" : " rows") + " a block, " +
                          (p.turns > 1 ? std::to_string(p.turns) + " tiles in turn, " : "") + "read once";
      plans_.push_back(std::move(p));
    };
    if (auto n = f_.constant(row)) {
      const bool whole = f_.row_multiple(vector_).known;
      BlockPlan loop = row_loop(row, whole);
      const auto lean = held_instead_of_tile(f_, loop, *n, whole, online_);
      const bool wasteful = lean || tile_is_wasteful(f_, *n, online_);
      if (auto p = wasteful ? std::nullopt : whole_rows(room(*n, *n), whole)) {
        std::string waste =
            p->columns > *n ? ", " + std::to_string(100 * (p->columns - *n) / p->columns) + " % of it idle" : "";
        add(std::move(*p), "rows of " + std::to_string(*n) + " in registers" + waste);
      } else {
        if (lean) loop = *lean;
        std::string again = ", each round of reductions reads again";
        if (loop.keep > 0) again = ", of which the block holds " + std::to_string(loop.keep + 1) + " tiles";
        if (loop.copied)
          again = ", read once, " + std::to_string(loop.keep) + " tiles of it copied to shared memory at once";
        add(std::move(loop), "rows of " + std::to_string(*n) + " in a loop" + again);
      }
      return std::move(plans_);
    }
    SymRange range = f_.d.env.range(row);
    Multiple whole = f_.row_multiple(vector_);
    // Whether there is no need of further kernels: for aligned rows, and for others.
    bool covered[2] = {!whole.known && !whole.condition, whole.known};
    for (const RowBound& b : kRowBounds) {
      if (covered[b.aligned ? 0 : 1] || range.lo > b.elements) continue;
      // Others may be shifted by all but one element of an access, in the same tile.
      const int64_t most = b.aligned ? b.elements : b.elements - vector_ + 1;
      bool all = range.hi <= most;
      auto p = whole_rows(room(all ? range.hi : most, range.lo), b.aligned);
      if (!p) continue;
      if (!all) p->conditions.push_back({row, 1, 0, most});
      if (b.aligned && !whole.known) p->conditions.push_back(*whole.condition);
      bool last = p->conditions.empty();
      add(std::move(*p), "rows of " + row.str() + " in registers");
      if (last) return std::move(plans_);
      covered[b.aligned ? 0 : 1] = all;
    }
    for (bool aligned : {true, false}) {
      if (aligned && (covered[0] || whole.known || !f_.implies(*whole.condition, row, vector_))) continue;
      BlockPlan p = row_loop(row, aligned || whole.known);
      if (aligned) p.conditions.push_back(*whole.condition);
      add(std::move(p), "rows of " + row.str() + " in a loop, each round of reductions reads again");
    }
    return std::move(plans_);
  }

private:
  // Elements of one access: as many as are known to divide rows of several axes.
  [[nodiscard]] static int64_t row_vector(const BlockFacts& f) {
    const int64_t most = kAccessBytes / f.usual;
    if (f.row_groups().columns.size() == 1) return most;
    for (int64_t v = most; v * f.usual >= 8; v /= 2)
      if (f.row_multiple(v).known) return v;
    return most;
  }
  // The row of up to `longest` elements in one tile; nothing when it would not fit the registers. `aligned`: rows are
  // whole accesses. Others are shifted where a block has one, and short ones accessed element by element.
  //
  // A thread has eight accesses, whose addresses, masks and reductions it then shares: of short rows fewer, so that a
  // warp has a whole one and no barrier is needed. Blocks are small, and have the registers that they take, but
  // for the largest tiles: some have loads under way while others wait at their reductions.
  [[nodiscard]] std::optional<BlockPlan> whole_rows(int64_t longest, bool aligned) const {
    constexpr int64_t kThreads = 128, kThreadBytes = 128, kValues = 128, kManyValues = 96, kResident = 512;
    constexpr int64_t kSmallRowBytes = 1024, kManyRows = 64;
    constexpr int64_t kLeastWarpRow = 1024, kWarpTiles = 14, kFewTurns = 32; // of a multiprocessor
    if (longest * f_.usual > longest_row(longest, aligned)) return std::nullopt;
    const bool constant = f_.constant(f_.d.env.simplify(f_.d.row_count())).has_value();
    // Of more than 1 KB those of narrow elements that are stored are worth a block each, with whole accesses.
    const bool alike = f_.usual <= 2 && f_.loaded_bytes() % f_.usual == 0; // no masks of bytes beside
    // Masks of bytes beside 32 bits would begin at lines of their own: longer rows are still accessed one by one.
    const int64_t unshifted = !constant || !f_.stores_rows() ? kShortRowBytes
                              : alike                        ? kShortRowBytes / 2
                              : f_.beside_bytes()            ? kWarpRowBytes
                                                             : kShortRowBytes;
    const int shift = aligned || power_above(longest) * f_.usual <= unshifted ? 1 : row_shift(f_, false);
    const int64_t columns = power_above(longest + shift - 1), bytes = columns * f_.usual;
    int64_t share = bytes <= 512 ? kThreadBytes / 2 : std::clamp<int64_t>(bytes / 32, 32, kThreadBytes);
    const auto n = f_.seen(f_.points(AxisRole::Outer));
    const bool short_norm = bytes <= kShortRowBytes && f_.row_groups().columns.size() == 1 && f_.stores_rows();
    if (n && short_norm && f_.usual >= 4 && bytes <= kSmallRowBytes) share = kThreadBytes;
    // Shifted rows of a warp, with its masks: where there are many, and nothing else takes registers.
    const bool many =
        n && *n >= kManyRows * f_.device.multiprocessors && f_.loads_beside() == 0 && f_.loaded_bytes() <= f_.usual;
    if (shift > 1 && bytes <= kWarpRowBytes && !many) share = std::min(share, kThreadBytes / 2);
    // Of several narrow streams, with a gain and a bias, there is much to compute.
    const bool several = shift > 1 && f_.usual <= 2 && f_.loaded_streams() > 1 && f_.loads_beside() > 0;
    // More than 16 KB by half as many threads where rows begin at half an access.
    const bool much = several && f_.loads_beside() > 1 && bytes <= kRowBytes, most = much && bytes == kRowBytes;
    const bool halves = constant && longest % std::max<int64_t>(1, vector_ / 2) == 0;
    const bool half_each = much && !(most && halves);
    if ((shift > 1 && f_.narrow_masks()) || half_each) share = std::min(share, kThreadBytes / 2);
    if (bytes > 2 * kRowBytes) share = 2 * kThreadBytes; // a block has all registers
    // Of one stream of 32 bits that nothing stands beside: a warp for 4 KB, for shorter rows together, with registers
    // for all it loads, unless there are few.
    const bool bare = n && aligned && f_.usual == 4 && f_.loaded_bytes() == 4 && f_.loads_beside() == 0 &&
                      f_.row_groups().columns.size() == 1 && f_.stores_rows();
    const bool warp_each = bare && bytes >= kLeastWarpRow && bytes <= kWarpRowBytes &&
                           *n * bytes >= kWarpTiles * kWarpRowBytes * f_.device.multiprocessors;
    // Other rows of just 4 KB, 32-bit: two warps are 3 % faster than one.
    const bool two_warps = !warp_each && n && f_.usual >= 4 && longest * f_.usual == kWarpRowBytes && f_.stores_rows();
    if (two_warps) share = kThreadBytes / 2;
    // Narrow rows with a gain: four warps have one.
    const bool four_warps = n && aligned && longest == columns && f_.usual == 2 && f_.stores_rows() &&
                            f_.loaded_streams() == 1 && f_.loads_beside() > 0 &&
                            (bytes == kWarpRowBytes || (bytes == 2 * kWarpRowBytes && f_.loads_beside() == 1));
    if (four_warps) share = bytes / kThreads;
    if (warp_each) share = kThreadBytes;
    int64_t each = std::clamp<int64_t>(share / f_.usual, 1, columns);
    // What of short rows' tiles lies beyond the row takes no registers.
    auto taken = [&](int64_t each) {
      const int64_t access = columns / each * vector_, accesses = (longest + shift - 1 + access - 1) / access;
      return several && constant && bytes <= 2 * kWarpRowBytes ? std::min(each, accesses * vector_) : each;
    };
    while (each > 1 && taken(each) * std::max(2, f_.live) > kValues) each /= 2;
    // Few rows: more threads, down to an access each.
    const int64_t least = aligned || shift > 1 ? vector_ : 1; // elements of an access
    // Threads of a multiprocessor: what hides a row's latencies, and of short rows that are stored what keeps loads
    // under way until the last wave. Shifted rows are begun and ended by each block, so there are to be more than two
    // waves of them.
    auto busy = [&] {
      const int64_t waves = shift == 1 ? 512 : several && bytes <= kRowBytes / 2 ? 1536 : 1024;
      const int64_t threads = !short_norm || each <= vector_ || shift > 1 ? waves
                              : bytes <= kSmallRowBytes                   ? 3072
                                                                          : 4096;
      return threads * f_.device.multiprocessors;
    };
    while (n && !warp_each && each > least && columns / each < 512 && *n * (columns / each) < busy()) each /= 2;
    if (!n && shift == 1 && bytes > 1024 && each > least && columns / each < 512) each /= 2; // may be few
    const int64_t lanes = columns / each;                                                    // threads of a row
    if (lanes > 1024) return std::nullopt;
    int64_t rows = shift > 1 || bytes > kWarpRowBytes || two_warps ? 1 : std::max<int64_t>(1, kThreads / lanes);
    if (warp_each) rows = std::max<int64_t>(1, 32 / lanes);
    while (n && rows > 1 && *n < rows * f_.device.multiprocessors) rows /= 2;
    int64_t threads = rows * lanes;
    // Gains of short rows are read and converted once for two of them, by warps that do not wait for each other.
    if (shift == 1 && bytes >= 512 && bytes <= 1024 && rows * lanes == kThreads && lanes == 32 &&
        f_.loads_beside() > 0 && 2 * each * std::max(2, f_.live) <= kValues && n &&
        *n >= kManyRows * 3 / 2 * f_.device.multiprocessors) {
      rows = 2;
      threads = 32;
    }
    const auto turns = aligned && n && longest == columns ? in_turn(columns, *n) : std::nullopt;
    if (turns) rows = turns->rows, threads = turns->threads;
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockRows, rows, columns, power_above(threads) / 32);
    p.turns = turns ? turns->turns : 1;
    p.shift = shift;
    // Of tiles that would take more registers than leave 512 threads on a multiprocessor, some have loads under way too
    // seldom: better a few values are kept elsewhere. What of a tile is beyond the row takes none: twice as many then.
    const int64_t block = int64_t{32} * p.warps, values = rows * columns / block * std::max(2, f_.live);
    const int64_t access = lanes * vector_, accesses = (longest + shift - 1 + access - 1) / access;
    const bool known = constant && (shift > 1 || aligned);
    const bool idle = known && values / each * std::min(each, accesses * vector_) < kManyValues;
    const bool partly =
        shift > 1 && known && accesses * vector_ < each && values >= kManyValues * 2 / 3 && block >= 256;
    // Two 32-bit streams need more than half of the registers.
    const bool half = idle && !(f_.usual > 2 && f_.loaded_streams() > 1);
    const int64_t resident = half ? 2 * kResident : idle || several ? kResident * 3 / 2 : kResident;
    // Of a few rows of two streams, with a gain and a bias, each has the registers that it takes.
    const bool norm = shift == 1 && f_.usual <= 2 && f_.loaded_streams() > 1 && f_.loads_beside() > 1;
    const bool free = norm && half && n && *n <= kFewTurns * f_.device.multiprocessors;
    if (most)
      p.min_blocks = 2;
    else if (!free && (values >= kManyValues || partly) && block < resident)
      p.min_blocks = static_cast<int>(resident / block);
    if (warp_each && threads == 32) p.min_blocks = bytes == kWarpRowBytes ? 32 : 25;
    if (bare && longest == columns && bytes == 2 * kWarpRowBytes && threads == 64) p.min_blocks = 16;
    // Few rows leave registers to those that there are.
    const int64_t processors = f_.device.multiprocessors;
    if (n && *n <= rows * processors) p.min_blocks = 0;
    p.groups = f_.row_groups();
    p.reads = caching(false, shift > 1 && f_.usual <= 2 && !f_.stores_rows());
    // Shifted rows of one stream: what two of them share a line of is read twice.
    if (shift > 1 && f_.stores_rows() && bytes > kWarpRowBytes && f_.loaded_bytes() == f_.usual)
      p.reads = f_.reads(true);
    return p;
  }
  // Short rows of 16-bit elements that fill their tile, and that programs take in turn, the loads of all of which are
  // copied to shared memory at once: more is under way than registers have room for. From as many on as keep the GPU
  // full, up to where waves of blocks are many, and where it is memory that a row waits for.
  struct Turns {
    int64_t rows, threads;
    int turns;
  };
  [[nodiscard]] std::optional<Turns> in_turn(int64_t row, int64_t n) const {
    constexpr int64_t kThreads = 64, kBytes = 32;    // of a block; of a thread's loads
    constexpr int64_t kLeast = 256, kMost = 8 << 10; // bytes of a row, what is loaded of one
    constexpr int64_t kFull = 896, kResident = 1280; // threads of a multiprocessor; where there are gains
    constexpr double kMostMoved = 100e6, kMostOfNorms = 150e6;
    constexpr int kElementary = 10, kMostFunctions = 15; // ScalarInfo::cost of functions, of all of them
    const int64_t loaded = f_.loaded_bytes();
    if (vector_ * f_.usual < kAccessBytes) return {}; // copies of less than 16 bytes
    if (!f_.stores_rows() || f_.usual > 2 || row * f_.usual < kLeast || row * loaded > kMost) return {};
    double moved = 0;
    for (const Stream& s : f_.streams) {
      moved += s.count * s.bytes;
      const bool large = !s.store && s.count >= f_.largest / 2;
      const bool whole = s.bytes >= f_.usual && f_.contiguous(s, static_cast<size_t>(f_.contiguous_axis));
      if (large && !whole) return {};
    }
    const bool one = loaded <= f_.usual, gains = f_.loads_beside() > 0;
    if (moved > (one && gains ? kMostOfNorms : kMostMoved)) return {};
    int functions = 0;
    for (ScalarId id = 0; id < f_.nest.dag.size(); ++id) {
      const int cost = info(f_.nest.dag[id].op).cost;
      if (f_.d.live[static_cast<size_t>(id)] && f_.d.row_varying(id) && cost >= kElementary) functions += cost;
    }
    if (functions > kMostFunctions) return {};
    int64_t each = std::max(vector_, power_below(kBytes / loaded)), lanes = row / each, block = kThreads;
    const int64_t processors = f_.device.multiprocessors;
    auto full = [&] { return n * lanes >= 2 * kFull * processors; };
    // A warp has 1024 elements where so much is moved that there are enough of them. A row of one stream and without
    // gains is rather a warp's than two warps', which would have to meet, and two warps' than four's.
    const int64_t much = 4 * vector_, most = one && !gains ? 64 : 32; // threads of a row
    const bool large =
        moved > static_cast<double>(f_.device.l2_bytes) && row <= most * much && much * std::max(2, f_.live) <= 128;
    if ((large || (lanes == 64 && one && !gains)) && n * row >= 2 * kFull * processors * much)
      each = much, lanes = row / each, block = 32;
    if (lanes < 1 || lanes > 1024 || each * std::max(2, f_.live) > 128) return {};
    if (!full()) return {};
    const int64_t threads = n * lanes;
    // Gains are read once for all turns: four of them, of one stream, where their programs then run all at a time.
    const bool four =
        one && gains && threads > 2 * kResident * processors && threads <= 4 * kResident * processors * 9 / 10;
    const int64_t rows = std::max<int64_t>(1, block / lanes);
    return Turns{rows, rows * lanes, four ? 4 : 2};
  }
  // Bytes of a row that a block keeps in registers. Of one stream of 32 bits more than of others, which are bound by
  // arithmetic: more where a loop would need masks, most where it has gains, too, and holds nothing (hold_row). Few
  // rows have the registers to themselves; twice as many where there is nothing to keep but one bit.
  [[nodiscard]] int64_t longest_row(int64_t longest, bool aligned) const {
    constexpr int64_t kMost = 4 * kRowBytes;
    const auto n = f_.seen(f_.points(AxisRole::Outer));
    auto few = [&](int rows) { return n && *n <= rows * f_.device.multiprocessors; }; // of a multiprocessor
    if (f_.usual >= 4) {
      if (f_.loaded_bytes() > 4) return kRowBytes;
      const bool fits = power_above(longest) * std::max(2, f_.live) <= kRegisterFile;
      const bool idle = 4 * longest <= 3 * power_above(longest);
      if (n && fits && (!aligned || idle) && f_.loads_beside() > 0 && !f_.one_pass()) return kMost;
      return aligned ? kWideTileBytes : 2 * kRowBytes;
    }
    if (f_.live == 1 && f_.accumulators() == 1) return few(2) ? kMost : 2 * kRowBytes;
    // Nothing of them is stored, so that a loop reads them once as well. Shifted ones are begun and ended by more
    // blocks there than have room for their registers in a tile.
    if (n && f_.usual == 2 && !aligned && f_.one_pass() && !few(8))
      return f_.accumulators() > 1 ? kWarpRowBytes * 7 / 4 : kRowBytes * 3 / 4;
    if (few(4) && f_.usual == 2 && !aligned && f_.loaded_streams() > 1 && f_.loads_beside() > 1) return kRowBytes / 2;
    return few(1) && !f_.one_pass() ? 2 * kRowBytes : kRowBytes;
  }
  // Of rows of whole accesses, and of others that a loop reads once, storing nothing. Sums of many rows are better off
  // without the L1, those of very many are not.
  [[nodiscard]] tile::Caching caching(bool again, bool shifted) const {
    constexpr double kMuch = 250e6;
    const bool whole = f_.d.env.divisor(f_.d.env.simplify(f_.d.row_count())) % vector_ == 0;
    if (!whole && !(shifted && f_.one_pass())) return tile::Caching::Normal;
    const tile::Caching hint = f_.reads(again);
    const bool lasting = hint == tile::Caching::Passing && !f_.stores_rows() && f_.read_bytes() >= kMuch;
    return lasting ? tile::Caching::Lasting : hint;
  }
  // Threads of a block and elements of each, in a loop over rows of `length`.
  struct LoopTile {
    int64_t threads, each;
  };
  // Elements of 32 bits: 64 KB of loads under way on a multiprocessor, in one block. Of rows that two such tiles would
  // hold, tiles of a quarter: of the last two nothing is read again.
  [[nodiscard]] LoopTile wide_loop(double length) const {
    constexpr int64_t kUnderWay = 64 << 10, kThreads = 512, kQuarter = 8, kSmall = 256;
    const int64_t loaded = f_.loaded_bytes(),
                  each = power_below(std::max<int64_t>(vector_, kUnderWay / kThreads / loaded));
    // Where nothing is read again smaller blocks of many rows overlap: one begins while others end.
    const auto n = f_.seen(f_.points(AxisRole::Outer));
    if (n && *n >= 2 * f_.device.multiprocessors && f_.one_pass())
      return {kSmall, std::max<int64_t>(vector_, each / 2)};
    if (loaded > 4 || length > static_cast<double>(2 * kThreads * each)) return {kThreads, each};
    return {std::clamp<int64_t>(power_above(static_cast<int64_t>(length)) / 4 / kQuarter, 128, 1024), kQuarter};
  }
  // What narrower elements wait for is arithmetic. That of masks wants several blocks, with short tiles, of which the
  // ends of the row waste little, unless operands of the row's length take the registers; that of positions small ones.
  [[nodiscard]] LoopTile narrow_loop(double length, bool shifted) const {
    const auto n = f_.seen(f_.points(AxisRole::Outer));
    const int64_t few = 2 * vector_, many = f_.usual == 1 ? few : 4 * vector_;
    // Whether tiles of twice as many elements waste more of their last one than they spare.
    auto wastes = [&](int64_t elements) {
      auto loaded = [&](auto tile) {
        return std::ceil(length / static_cast<double>(tile)) * static_cast<double>(tile);
      };
      return loaded(2 * elements) > 1.15 * loaded(elements);
    };
    auto at_most = [&](int rows) { return n && *n <= rows * f_.device.multiprocessors; }; // of a multiprocessor
    if (at_most(1)) return {512, many > few && !wastes(512 * few) ? many : few};
    if (!f_.stores_rows()) {
      const bool positions = f_.accumulators() > 1, bit = !positions && f_.live == 1;
      if (at_most(2)) return {512, bit && !shifted ? many : few}; // two blocks, which have half of the registers each
      // Of shifted rows those that begin and end are many: small blocks, of which others are in the midst of theirs.
      if (shifted && !bit && length * f_.usual <= kRowBytes) return {64, few};
      return {positions || (shifted && !bit) ? 128 : 256, many};
    }
    // Of rows that two tiles hold nothing is read again.
    if (at_most(3) && length <= static_cast<double>(2 * 512 * many) && !wastes(512 * few)) return {512, many};
    const bool two = f_.loaded_bytes() >= 2 * f_.usual, gains = f_.loads_beside() > 1;
    if (shifted && at_most(4) && (two || gains)) return {128, two && gains ? few : many};
    if (shifted) return gains ? LoopTile{512, many} : LoopTile{f_.narrow_masks() ? 512 : 256, few};
    return {wastes(256 * few) ? 256 : 512, few};
  }
  // `aligned`: rows start at whole accesses. All that a thread has of a tile is folded into one accumulator.
  [[nodiscard]] BlockPlan row_loop(const SymExpr& row, bool aligned) const {
    const double length = f_.seen(row) ? f_.guess(row) : 1e9;
    const int shift = aligned ? 1 : row_shift(f_, true);
    const bool ahead = f_.row_groups().columns.size() == 1;
    auto [threads, each] = f_.divides()   ? LoopTile{256, vector_}
                           : f_.usual > 2 ? wide_loop(length)
                                          : narrow_loop(length, shift > 1);
    // Of rows of unknown length masks and index arithmetic take a part.
    // A block that holds the row in two tiles, all registers. So have small ones of two streams, shifted.
    const bool small = threads == 128 && shift > 1 && f_.stores_rows();
    const bool two = small || (threads == 512 && length <= static_cast<double>(2 * threads * each));
    const int64_t room = two                ? kRegisters * 33 / 16
                         : threads > 512    ? kRegisters * 25 / 32
                         : f_.constant(row) ? kRegisters * 7 / 4
                                            : kRegisters * 7 / 10;
    const int64_t next = ahead ? f_.loaded_halves() : 0;
    while (each > 1 && each * f_.live + each * next / 2 + f_.accumulators() > room) each /= 2;
    int64_t columns = threads * each;
    while (columns > 64 && static_cast<double>(columns) >= length) columns /= 2; // a loop has two tiles
    threads = std::min(threads, columns / 2);
    each = columns / threads;
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockLoop, 1, columns, threads / 32);
    p.shift = static_cast<int>(std::min<int64_t>(shift, columns));
    p.run = static_cast<int>(aligned || shift > 1 ? std::min(each, vector_) : 1);
    p.steps = static_cast<int>(each / p.run);
    p.groups = f_.row_groups();
    p.loop = true;
    p.ahead = ahead;
    p.reads = caching(!f_.one_pass(), shift > 1);
    p.streaming = length * f_.usual >= kRowBytes;
    // Two blocks of 512 threads have half of the registers each: for the tile, the next one, and addresses.
    const int64_t registers = each * (f_.live > 2 ? 3 : 2) / 2 + each * f_.loaded_bytes() / 2 + 16;
    if (f_.usual <= 2 && aligned && ahead && threads == 512 && f_.stores_rows() && registers < 64) p.min_blocks = 2;
    // All rows at a time.
    if (const auto n = f_.seen(f_.points(AxisRole::Outer)); n && f_.usual <= 2) {
      const int64_t least = (*n + f_.device.multiprocessors - 1) / f_.device.multiprocessors; // on a multiprocessor
      if (threads == 256 && registers < 64 && least == 4) p.min_blocks = 4;
      if (threads == 512 && !f_.stores_rows() && least == 2) p.min_blocks = 2;
    }
    if (f_.usual > 2 && threads == 256 && !f_.divides() && f_.one_pass()) p.min_blocks = 3; // of wide_loop
    // Shifted narrow rows with the next tile under way, which the assembler would give all registers.
    if (f_.usual == 2 && shift > 1 && ahead && f_.stores_rows() && f_.loads_beside() == 0 && f_.loaded_streams() == 1 &&
        f_.constant(row)) {
      if (threads == 512 && f_.narrow_masks()) p.min_blocks = 2;
      if (threads == 256) p.min_blocks = 3;
    }
    if (f_.usual == 2 && shift > 1 && threads <= 128 && f_.one_pass()) p.min_blocks = even_turns(threads, each);
    hold_in_loop(f_, p, f_.constant(row), online_);
    return p;
  }
  // Blocks of small ones that a multiprocessor has at a time, such that few rows leave few of them idle at the end: 700
  // rows take as long in five blocks of each of 132 multiprocessors as 1320 would. 0: as many as registers allow.
  [[nodiscard]] int even_turns(int64_t threads, int64_t each) const {
    constexpr int64_t kMany = 64; // rows of a multiprocessor, of which the last ones matter little
    constexpr double kWorth = 1.03;
    const auto n = f_.seen(f_.points(AxisRole::Outer));
    if (!n || *n > kMany * f_.device.multiprocessors) return 0;
    if (f_.accumulators() > 1 && *n <= 1024 / threads * f_.device.multiprocessors) return 0; // all at a time
    int best = 0;
    double most = 0;
    for (int64_t warps : {32, 24, 20, 16}) {
      if (warps == 32 && each > 2 * vector_) continue; // take more registers
      const int64_t blocks = 32 * warps / threads, places = blocks * f_.device.multiprocessors;
      const double busy = static_cast<double>(*n) / static_cast<double>((*n + places - 1) / places * places);
      if (busy > kWorth * most) most = busy, best = static_cast<int>(blocks);
    }
    return best;
  }
  const BlockFacts& f_;
  const bool online_;
  int64_t vector_; // elements of one access along a row
  std::vector<BlockPlan> plans_;
};

} // namespace

std::vector<BlockPlan> row_plans(const BlockFacts& facts, bool online) { return RowPlanner(facts, online).rows(); }

} // namespace tessera
