// Nests without reductions of which a good part of the bytes is contiguous along another axis than the rest: tiles that
// are long along both.
#include "codegen/schedule/block_facts.h"
#include <algorithm>

namespace tessera {
namespace {

constexpr int kThreads = 256;                  // one access a thread and stream, many blocks
constexpr int kTransposeElements = 64 * 64;    // of a tile that is contiguous along one side and then the other
constexpr int kOddTransposeElements = 32 * 32; // where each narrow element is an access of its own
constexpr int64_t kStagedLanes = 8;            // beside each other along columns: their banks differ (block_stage.cpp)
constexpr int64_t kStagedRun = 32;             // rows of a tile that spans all columns, at least
constexpr double kStagedBytes = 192;           // that a thread loads of its tile, at most
constexpr int64_t kStagedSide = 16;            // of a tile with staged operands, at least

class TransposePlanner {
public:
  TransposePlanner(const BlockFacts& facts, std::vector<BlockPlan>& plans) : f_(facts), plans_(plans) {}

  bool run() {
    const int d = transposed_axis();
    return d >= 0 &&
           transposes(static_cast<size_t>(d), static_cast<size_t>(f_.contiguous_axis), f_.points(AxisRole::Outer));
  }

private:
  // An axis other than the contiguous one along which a good part of the bytes is contiguous instead.
  [[nodiscard]] int transposed_axis() const {
    size_t c = static_cast<size_t>(f_.contiguous_axis);
    double total = 0, most = 0;
    int axis = -1;
    for (const Stream& s : f_.streams) total += s.count * s.bytes;
    for (size_t i = 0; i < f_.d.axes.size(); ++i) {
      if (i == c) continue;
      double bytes = 0;
      for (const Stream& s : f_.streams)
        if ((s.deps >> c & 1) && s.count >= f_.largest / 2 && f_.contiguous(s, i) && !f_.contiguous(s, c))
          bytes += s.count * s.bytes;
      if (bytes > most) {
        most = bytes;
        axis = static_cast<int>(i);
      }
    }
    return most * 8 >= total && f_.guess(f_.extent(c)) > 1 && axis >= 0 &&
                   f_.guess(f_.extent(static_cast<size_t>(axis))) > 1
               ? axis
               : -1;
  }
  // Whether no other plans are needed behind these.
  bool transposes(size_t d, size_t c, const SymExpr& all) {
    std::vector<SizeCondition> whole; // accesses along both
    bool possible = true;
    for (size_t axis : {c, d}) {
      Multiple m = f_.multiple(f_.extent(axis), f_.vector);
      possible = possible && (m.known || m.condition);
      if (m.condition) whole.push_back(*m.condition);
    }
    if (possible) plans_.push_back(transpose(d, c, all, kTransposeElements));
    if (possible && whole.empty()) {
      plans_.back().reads = f_.reads(false);
      return true;
    }
    if (possible) plans_.back().conditions = std::move(whole);
    if (auto p = staged(d, c, all)) {
      plans_.push_back(std::move(*p));
      return true;
    }
    if (short_rows(d, c)) return false;
    const bool odd = f_.narrow < 4 && !f_.multiple(f_.extent(c), f_.vector).known; // so are most accesses
    plans_.push_back(transpose(d, c, all, odd ? kOddTransposeElements : kTransposeElements));
    return true;
  }
  // Accesses of a row from which on it is staged. Of narrow elements there are more to each of its ends.
  [[nodiscard]] int64_t staged_accesses() const { return f_.narrow < 4 ? 2 * kStagedLanes : kStagedLanes; }
  // Rows of narrow elements that are too short to be staged, but not to be one run: what is stored is in whole accesses
  // then, and what runs across is read element by element.
  [[nodiscard]] bool short_rows(size_t d, size_t c) const {
    const auto across = f_.constant(f_.extent(c));
    const bool stored = std::all_of(f_.streams.begin(), f_.streams.end(),
                                    [&](const Stream& s) { return !s.store || f_.contiguous(s, c); });
    return across && f_.narrow < 4 && stored && !f_.multiple(f_.extent(c), f_.vector).known &&
           *across >= kStagedLanes * f_.vector && *across < staged_accesses() * f_.vector &&
           f_.guess(f_.extent(d)) >= static_cast<double>(kStagedSide);
  }
  // With operands along d staged in shared memory (block_stage.cpp): whole accesses along both sides of any length.
  // What is stored is not staged, so its axis has the columns.
  [[nodiscard]] std::optional<BlockPlan> staged(size_t d, size_t c, const SymExpr& all) const {
    auto stored_along = [&](size_t axis) {
      return std::any_of(f_.streams.begin(), f_.streams.end(),
                         [&](const Stream& s) { return s.store && f_.contiguous(s, axis); });
    };
    if (stored_along(d)) std::swap(c, d);
    if (stored_along(d)) return std::nullopt;
    int across_rows = 0;
    double moved = 0, loaded = 0; // by an element, bytes
    for (const Stream& s : f_.streams) {
      if (s.count < f_.largest / 2) continue;
      moved += s.bytes;
      loaded += s.store ? 0 : s.bytes;
      if (!f_.contiguous(s, d)) continue;
      ++across_rows;
      if (!staged_pitch(f_.d, *s.access, d, c)) return std::nullopt;
    }
    if (across_rows == 0) return std::nullopt;
    const bool shifts = shifted_start(f_.graph, f_.nest, f_.d, c, f_.vector, f_.vector).has_value();
    const auto across = static_cast<int64_t>(f_.guess(f_.extent(c))),
               down = static_cast<int64_t>(f_.guess(f_.extent(d)));
    // Of few accesses the first and the last one of a row, which are taken apart, are too many.
    if (across < (shifts ? staged_accesses() * f_.vector : kStagedLanes) || down < kStagedSide) return std::nullopt;
    // All of a thread's loads are under way at a time.
    int64_t each = kTransposeElements / kThreads;
    while (each > 4 && static_cast<double>(each) * loaded > kStagedBytes) each /= 2;
    while (each > 4 && each * f_.live * std::max(1, f_.usual / 4) > kRegisters) each /= 2;
    int64_t elements = kThreads * each, columns = kStagedLanes * f_.vector;
    if (auto n = f_.seen(all); n && *n < elements * f_.device.multiprocessors) elements = 1024;
    // All columns where they are few: what is contiguous along them is so from row to row.
    const int64_t all_columns = power_above(across + (shifts ? f_.vector - 1 : 0));
    if (all_columns <= elements / kStagedRun) columns = all_columns;
    const int64_t rows = std::min(std::max(kStagedSide, elements / columns), power_above(down));
    while (columns * rows < elements && columns < std::min(all_columns, 32 * f_.vector)) columns *= 2;
    const int64_t warps = std::clamp<int64_t>(rows * columns / (32 * each), 1, 8);
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, rows, columns, power_below(warps));
    p.groups.columns = {c};
    p.groups.rows = {d};
    for (size_t i = 0; i < f_.d.axes.size(); ++i)
      if (i != c && i != d) p.groups.points.push_back(i);
    p.staged = true;
    p.shift = shifts ? static_cast<int>(f_.vector) : 1;
    p.whole_branch = true;
    // Tiles above each other share sectors of what runs across: of as many tiles as one row has, the L2 would have lost
    // them.
    p.downward =
        moved * static_cast<double>(across) * static_cast<double>(rows) > static_cast<double>(f_.device.l2_bytes) &&
        down * columns < across * rows;
    p.schedule.why = "operands contiguous along " + f_.extent_text(c) + " and along " + f_.extent_text(d) +
                     ": staged in shared memory; " + BlockFacts::sizes(p);
    return p;
  }
  [[nodiscard]] BlockPlan transpose(size_t d, size_t c, const SymExpr& all, int64_t elements) const {
    int64_t warps = 8;
    while (elements > 1024 && elements / (32 * warps) * f_.live > kRegisters) elements /= 2;
    if (auto n = f_.seen(all); n && *n < elements * f_.device.multiprocessors) {
      elements = 1024;
      warps = 4;
    }
    int64_t side = 1;
    while (side * side < elements) side *= 2;
    auto most = [&](size_t axis) {
      auto n = f_.constant(f_.extent(axis));
      return n ? power_above(*n) : elements;
    };
    int64_t columns = std::min(side, most(c)), rows = std::min(elements / columns, most(d));
    columns = std::min(elements / rows, most(c));
    // All of a short side whose rows do not begin at lines, so that what is contiguous along it is one piece. Or
    // another shape where that one would leave much more of its tiles idle: 144 rows are nine of 16.
    const auto across = f_.constant(f_.extent(c)), down = f_.constant(f_.extent(d));
    constexpr int64_t kLeast = 16, kShortSide = 128;
    auto short_side = [&](const std::optional<int64_t>& n) {
      return n && *n <= kShortSide && *n % f_.vector == 0 && *n * f_.narrow % f_.device.line_bytes != 0 &&
             elements / power_above(*n) >= kLeast;
    };
    if (short_side(down)) {
      rows = power_above(*down);
      columns = std::min(elements / rows, most(c));
    } else if (short_side(across)) {
      columns = power_above(*across);
      rows = std::min(elements / columns, most(d));
    } else if (across && down) {
      constexpr double kWorth = 0.85;
      auto covered = [&](int64_t r, int64_t k) {
        return static_cast<double>((*down + r - 1) / r * r) * static_cast<double>((*across + k - 1) / k * k);
      };
      double least = kWorth * covered(rows, columns);
      for (int64_t r = kLeast; r <= most(d); r *= 2)
        if (const int64_t k = rows * columns / r; k >= kLeast && k <= most(c) && covered(r, k) < least) {
          least = covered(r, k);
          rows = r;
          columns = k;
        }
    }
    warps = std::clamp<int64_t>(rows * columns / 128, 1, warps);
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, rows, columns, power_below(warps));
    p.groups.columns = {c};
    p.groups.rows = {d};
    for (size_t i = 0; i < f_.d.axes.size(); ++i)
      if (i != c && i != d) p.groups.points.push_back(i);
    p.schedule.why = "operands contiguous along " + f_.extent_text(c) + " and along " + f_.extent_text(d) +
                     ": transposed within the block; " + BlockFacts::sizes(p);
    return p;
  }

  const BlockFacts& f_;
  std::vector<BlockPlan>& plans_;
};

} // namespace

bool transpose_plans(const BlockFacts& facts, std::vector<BlockPlan>& plans) {
  return TransposePlanner(facts, plans).run();
}

} // namespace tessera
