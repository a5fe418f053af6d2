// Reductions while an outer axis is the contiguous one, by blocks of threads: tiles of columns, in registers or in a
// loop down the row, and folds so short that they are single threads'.
#include "codegen/schedule/block_facts.h"
#include <algorithm>

namespace tessera {
namespace {

constexpr int kColumnBytes = 128;     // of a row of a column tile: whole lines
constexpr int64_t kThreadBytes = 128; // of a column tile that several rounds read once
constexpr int64_t kShortRow = 32;     // at most so many elements are folded by one thread

class ColumnPlanner {
public:
  ColumnPlanner(const BlockFacts& facts, bool online) : f_(facts), online_(online) {}

  std::vector<BlockPlan> run() {
    size_t c = static_cast<size_t>(f_.contiguous_axis);
    SymExpr row = f_.d.env.simplify(f_.d.row_count());
    if (short_folds()) return threads_fold(c, row);
    AxisGroups groups;
    bool narrow = f_.guess(f_.extent(c)) < 32; // short columns of several points side by side
    SymExpr width = 1, others = 1;
    for (size_t i = 0; i < f_.d.axes.size(); ++i) {
      if (f_.is_row(i))
        groups.rows.push_back(i);
      else if (i != c && narrow)
        groups.columns.push_back(i);
      else if (i != c) {
        groups.points.push_back(i);
        others *= f_.extent(i);
      }
      if (!f_.is_row(i) && (i == c || narrow)) width *= f_.extent(i);
    }
    groups.columns.push_back(c);

    int64_t threads = 256, each = 4 * f_.vector;
    while (each > 1 && each * (f_.live + f_.accumulators()) > kRegisters) each /= 2;
    int64_t columns = std::max<int64_t>(32, kColumnBytes / f_.narrow);
    if (auto n = f_.constant(width)) columns = std::min(columns, power_above(*n));
    const auto many = f_.seen(width * others);
    if (many) {
      while (columns > 16 && *many < columns * f_.device.multiprocessors) columns /= 2;
      // Blocks that read their columns again are long: two on a multiprocessor and more even it out.
      while (!f_.one_pass() && columns * f_.narrow > 2 * f_.device.sector_bytes &&
             *many < 2 * columns * f_.device.multiprocessors)
        columns /= 2;
    }
    int64_t rows = std::max<int64_t>(1, threads * each / columns);
    auto length = f_.constant(row);
    // A row that half as many columns let stand in the tile is read once. The more threads share a column the longer
    // they take to meet: of narrow elements they have as much of short rows, too, if there are columns for all
    // multiprocessors.
    const bool wide = columns * f_.narrow > 2 * f_.device.sector_bytes && !f_.one_pass();
    const bool twice = f_.narrow <= 4 && 2 * each * (f_.live + f_.accumulators()) <= kRegisters * 3 / 2;
    const int64_t tall = 2 * threads * (twice ? 2 * each : each) / columns;
    constexpr int64_t kLeastShared = 32;
    const bool stands = wide && length && *length >= kLeastShared && *length <= tall &&
                        (*length > rows || (f_.narrow <= 2 && many && *many >= columns * f_.device.multiprocessors));
    if (stands) {
      columns /= 2;
      rows = power_above(*length);
    }
    bool once = length && *length <= rows;
    // So are small blocks of columns of one sector, of which there are two and more then.
    const int64_t all = columns * f_.device.multiprocessors;
    if (!once && !f_.one_pass() && f_.narrow <= 2 && columns * f_.narrow == 2 * f_.device.sector_bytes && many &&
        *many >= all && *many < 2 * all) {
      columns /= 2;
      threads /= 2;
      rows = std::max<int64_t>(1, threads * each / columns);
    }
    // Folded in one round down long columns: many small blocks, so that memory is busy while some of them compute.
    if (!once && f_.one_pass()) {
      constexpr int64_t kThreads = 128, kElements = 16, kWarps = 32; // of a multiprocessor, at least
      threads = kThreads;
      each = std::min(each, std::max(kElements, f_.vector));
      columns = std::min<int64_t>(columns, std::max<int64_t>(32, kColumnBytes / 2 / f_.narrow));
      // Where each element is an access of its own a warp has 32 columns. Those of one block fold the same ones while
      // there would be too few otherwise.
      while (many && !f_.multiple(f_.extent(c), f_.vector).known && columns < kThreads &&
             4 * *many * (kThreads / 32) >= 7 * columns * kWarps * f_.device.multiprocessors)
        columns *= 2;
      if (const auto w = many ? wide_enough(*many, each) : std::nullopt) columns = *w, threads = kLargest;
      rows = std::max<int64_t>(1, threads * each / columns);
    } else if (length && !once && many) {
      // Blocks that are alone on a multiprocessor are larger; of narrow elements, all have long pieces of columns, but
      // for those that are wide enough for two.
      const bool alone = *many <= columns * f_.device.multiprocessors;
      const int64_t more = alone || f_.narrow <= 2 ? 2 * each : each;
      const int64_t block = alone ? 512 : threads;
      if (f_.narrow <= 2 && wide && !alone) {
        columns /= 2;
        rows = std::max<int64_t>(1, threads * each / columns);
      } else if (more * (f_.live + f_.accumulators()) <= kRegisters * 3 / 2 && block * more / columns < *length) {
        threads = block;
        each = more;
        rows = threads * each / columns;
      }
    }
    if (length) rows = std::min(std::max<int64_t>(rows, 2), power_above(room(*length, *length)));
    int64_t elements = rows * columns;
    // A thread has as much of a short row as of a tile of a long one, if there are many: threads that share a column
    // meet at the end.
    const bool alike = once && many && *many >= 4 * columns * f_.device.multiprocessors && f_.one_pass();
    if (alike && f_.narrow <= 2 && columns * f_.narrow > 2 * f_.device.sector_bytes && rows > kShortRow) {
      columns /= 2; // of narrow ones smaller blocks
      elements /= 2;
      threads /= 2;
    }
    if (stands) {
      each = kThreadBytes / f_.narrow;
      while (each > 1 && each * (f_.live + f_.accumulators()) > 3 * kRegisters) each /= 2;
    }
    threads =
        std::clamp<int64_t>(elements / (alike || stands ? each : std::min<int64_t>(each, f_.vector)), 32, threads);
    // Of 32-bit columns that a tile has all of, and that are many, threads have as much: those that share a column meet
    // at the end. As long as they keep the GPU busy.
    if (once && !stands && !f_.one_pass() && f_.usual >= 4 && many &&
        *many >= 4 * columns * f_.device.multiprocessors) {
      constexpr int64_t kBusy = 512; // of a multiprocessor
      const int64_t blocks = (*many + columns - 1) / columns;
      const int64_t least = power_above((kBusy * f_.device.multiprocessors + blocks - 1) / blocks);
      threads = std::min(threads, std::max({int64_t{32}, elements / (2 * each), least}));
    }
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockColumns, rows, columns, threads / 32);
    p.groups = groups;
    p.loop = !once;
    if (p.loop) p.steps = static_cast<int>(std::min<int64_t>(std::max<int64_t>(1, each / f_.vector), rows / 2));
    if ((once || f_.one_pass()) && f_.multiple(f_.extent(c), f_.vector).known) p.reads = f_.reads(false);
    if (p.loop && length && !f_.one_pass()) keep_columns(p, c, *length, width * others);
    p.schedule.why = "the row of " + row.str() + " is not contiguous, an outer axis of " + f_.extent_text(c) + " is; " +
                     BlockFacts::sizes(p) + (once ? ", the whole row in registers" : ", a loop down the row");
    if (p.keep > 0) p.schedule.why += ", of which " + std::to_string(p.keep) + " tiles stay in shared memory";
    return for_all_extents(std::move(p), c);
  }

private:
  // Much of narrow elements: as many columns as leave one block of 1024 threads for each multiprocessor, or two, if
  // that keeps nearly all of them busy.
  static constexpr int64_t kLargest = 1024;
  [[nodiscard]] std::optional<int64_t> wide_enough(int64_t many, int64_t each) const {
    constexpr int64_t kLeast = 256; // columns
    constexpr double kMuch = 50e6, kBusy = 0.9;
    if (f_.narrow != 2 || f_.read_bytes() < kMuch) return std::nullopt;
    for (int64_t blocks : {1, 2})
      for (int64_t columns = kLeast; 2 * columns <= kLargest * each; columns *= 2) {
        const int64_t all = blocks * f_.device.multiprocessors, taken = (many + columns - 1) / columns;
        if (taken <= all && static_cast<double>(taken) >= kBusy * static_cast<double>(all)) return columns;
      }
    return std::nullopt;
  }
  // First for extents along `c` that are whole accesses, where that is not known.
  [[nodiscard]] std::vector<BlockPlan> for_all_extents(BlockPlan p, size_t c) const {
    std::vector<BlockPlan> plans;
    if (Multiple whole = f_.multiple(f_.extent(c), f_.vector); whole.condition) {
      plans.push_back(p);
      plans.back().conditions.push_back(*whole.condition);
    }
    plans.push_back(std::move(p));
    return plans;
  }
  // Few elements are folded into each of many results, in one round: depthwise convolutions, pooling, sums of a small
  // dimension. Then no threads need to meet.
  [[nodiscard]] bool short_folds() const {
    auto length = f_.constant(f_.d.row_count());
    if (!length || *length < 2 || *length > kShortRow) return false;
    for (size_t i = 0; i < f_.d.live.size(); ++i)
      if (f_.d.live[i] && f_.d.stage[i] > 1) return false;
    if (f_.stores_rows()) return false;
    SymExpr results = f_.points(AxisRole::Outer);
    int64_t least = std::max(f_.d.env.range(results).lo, f_.d.env.divisor(results));
    return f_.seen(results).value_or(least) >= 64 * f_.vector * f_.device.multiprocessors;
  }
  // Each thread folds its own columns, some rows at a time; all outer axes are columns.
  std::vector<BlockPlan> threads_fold(size_t c, const SymExpr& row) {
    constexpr int64_t kThreads = 256, kRowsAtATime = 4;
    int64_t vector = f_.vector, values = f_.live + f_.accumulators(), rows = kRowsAtATime;
    while (rows > 1 && rows * vector * values > kRegisters) rows /= 2;
    while (vector > 1 && vector * values > kRegisters) vector /= 2;
    // Columns that are accessed one by one lie side by side in a warp, and a thread has all of one.
    auto whole = [&] {
      const Multiple m = f_.multiple(f_.extent(c), vector);
      return m.known || m.condition;
    };
    const int64_t widest = vector;
    while (vector > 1 && !whole()) vector /= 2;
    if (vector < widest) rows = std::min(rows * widest / vector, kShortRow);
    while (rows > 1 && rows * vector * values > 2 * kRegisters) rows /= 2;
    int64_t length = *f_.constant(row);
    rows = std::min(rows, power_above(length));
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockColumns, rows, kThreads * vector, kThreads / 32);
    for (size_t i = 0; i < f_.d.axes.size(); ++i)
      if (i != c) (f_.is_row(i) ? p.groups.rows : p.groups.columns).push_back(i);
    p.groups.columns.push_back(c);
    p.loop = length > rows;
    p.schedule.why = "rows of " + row.str() + " folded by single threads; " + BlockFacts::sizes(p) +
                     ", contiguous along " + f_.extent_text(c);
    return for_all_extents(std::move(p), c);
  }
  // Down long columns with several rounds: what later ones need stays in shared memory, for which columns are made
  // narrow. Half of it, at least, or the plan stays as it is.
  void keep_columns(BlockPlan& p, size_t c, int64_t length, const SymExpr& results) const {
    constexpr int64_t kThreads = 512, kBlocks = 2;
    constexpr double kMuch = 200e6; // what is read; of less the L2 holds a part, and blocks that keep little are more
    if (f_.read_bytes() < kMuch) return;
    const int64_t bytes = f_.kept_element(online_);
    int64_t each = 2 * f_.vector, columns = p.columns;
    while (each > 1 && each * f_.live + f_.vector * f_.accumulators() > kRegisters) each /= 2;
    const int64_t elements = kThreads * each;
    const int64_t room = f_.shared_room(kBlocks, exchange_bytes(f_, elements, c));
    const auto many = f_.seen(results);
    auto halve = [&](bool wanted) { return wanted && columns * f_.narrow > f_.device.sector_bytes; };
    while (halve(length * columns * bytes > room + elements * bytes)) columns /= 2;
    while (many && halve(*many < columns * kBlocks * f_.device.multiprocessors)) columns /= 2;
    if (bytes == 0 || room <= 0 || columns < 2 || (many && *many < columns * f_.device.multiprocessors)) return;
    const int64_t rows = elements / columns, tiles = (length + rows - 1) / rows;
    const int64_t keep = std::min(tiles - 1, room / (elements * bytes));
    if (keep < 1 || 2 * (keep + 1) < tiles) return;
    p.rows = static_cast<int>(rows);
    p.columns = static_cast<int>(columns);
    p.warps = static_cast<int>(kThreads / 32);
    p.steps = static_cast<int>(std::clamp<int64_t>(each / f_.vector, 1, rows / 2));
    p.keep = static_cast<int>(keep);
    p.min_blocks = static_cast<int>(kBlocks);
  }

  const BlockFacts& f_;
  const bool online_;
};

} // namespace

std::vector<BlockPlan> column_plans(const BlockFacts& facts, bool online) { return ColumnPlanner(facts, online).run(); }

} // namespace tessera
