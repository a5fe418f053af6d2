// Few long rows: whether programs share each, in which blocks, and how much of it they keep.
#include "codegen/schedule/block_team_plans.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr int64_t kLeastBytes = 16 << 10;   // of a program's share
constexpr int64_t kShots = 4;               // waves of programs of a tile each, at least
constexpr int64_t kTeamRowBytes = 64 << 10; // what a block could hold is shared from here on
constexpr double kMuchKept = 0.75;          // of rows of several narrow streams, which a block alone does not hold
constexpr double kMostlyKept = 0.85;        // of a row, so that reading the rest again is nothing
constexpr double kBusy = 0.9;               // of the programs that run at a time, where all have a part of a row

class RowTeamPlanner : TeamShares {
public:
  explicit RowTeamPlanner(const TeamShares& shares) : TeamShares(shares) {}

  std::vector<BlockPlan> run() {
    along_rows();
    return std::move(plans_);
  }

private:
  // Time of `programs` that each read and write as much, a part `kept` of what is read again never leaving them.
  [[nodiscard]] double us(double programs, double kept) const {
    const double full = static_cast<double>(programs_);
    double each = programs / std::ceil(programs / full); // multiprocessors that work, on the average
    double rate = std::min(f_.device.memory_bytes_per_us, each * f_.device.core_memory_bytes_per_us);
    double faster = again_ > static_cast<double>(f_.device.l2_bytes)
                        ? 1
                        : f_.device.l2_bytes_per_us / f_.device.memory_bytes_per_us;
    return total_ / rate + again_ * (1 - kept) / (rate * faster);
  }
  // Whether a team is worth its meeting, where `blocks` programs would work without, and keep a part `alone`; sizes
  // are known.
  [[nodiscard]] bool pays(double blocks, double alone, double programs, double kept, bool long_enough) const {
    // What a block holds alone it reads first, and then stores: slower, but where there are blocks for nearly all.
    constexpr double kAlternating = 1.6, kNearlyAll = 0.8;
    const bool slow = alone > 0 && blocks < kNearlyAll * static_cast<double>(programs_) && long_enough;
    const double meetings = (waits_ && long_enough && row_axes() == 1 ? 1 : 2) * f_.device.grid_barrier_us;
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
    Multiple whole = f_.row_multiple(vector);
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
        if (*count * tiles >= kShots * shot.resident * programs_ && tiles <= most_partials(shot.threads))
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

  std::vector<BlockPlan> plans_;
};

} // namespace

std::vector<BlockPlan> row_team_plans(const TeamShares& shares) { return RowTeamPlanner(shares).run(); }

} // namespace tessera
