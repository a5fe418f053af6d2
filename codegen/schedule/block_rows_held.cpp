// Long rows that a block holds by itself, in shared memory and one tile in registers.
#include "codegen/schedule/block_facts.h"
#include <algorithm>

namespace tessera {
namespace {

class HeldRowPlanner {
public:
  HeldRowPlanner(const BlockFacts& facts, bool online)
      : f_(facts), online_(online), vector_(kAccessBytes / facts.usual),
        rows_(facts.seen(facts.points(AxisRole::Outer))), many_(rows_ && *rows_ >= 4 * facts.device.multiprocessors) {}

  // The part of a row of `length` elements that the plan's blocks then hold; 0: nothing of it.
  double hold(BlockPlan& p, const HeldRow& held, int64_t length) const {
    const int64_t tile = held.threads * held.each, bytes = f_.kept_element(online_);
    const int64_t tiles = (length + p.shift - 1 + tile - 1) / tile;
    const int64_t keep = std::min(tiles - 1, f_.tiles_in_shared(tile, bytes, held.blocks));
    if (keep < 1) return 0;
    set(p, held);
    p.keep = static_cast<int>(keep);
    p.reads = f_.reads(true);
    return static_cast<double>(keep + 1) / static_cast<double>(tiles);
  }
  void set(BlockPlan& p, const HeldRow& tile) const {
    p.columns = static_cast<int>(tile.threads * tile.each);
    p.warps = static_cast<int>(tile.threads / 32);
    p.steps = static_cast<int>(std::max<int64_t>(1, tile.each / p.run));
    p.ahead = tile.ahead && !f_.strided_rows();
    p.min_blocks = static_cast<int>(tile.blocks);
    p.streaming = p.copied = false;
  }
  // Rows that a block holds: what is read again comes from the L2, and slowly. All of a row, or of narrow elements
  // much. Tiles that take half of the registers are loaded one by one, smaller ones while the one before is folded.
  // Gains are read for each row whatever is held, and take the registers of wider elements.
  void in_loop(BlockPlan& p, std::optional<int64_t> n) const {
    constexpr int64_t kThreads = 512, kBlocks = 2, kLeast = 64 << 10, kLong = 96 << 10, kSmall = 8 << 10; // bytes
    constexpr double kMost = 0.66, kMasked = 0.85;                                                        // of the row
    if (n && tile_is_idle(*n)) {
      // Small blocks, 1024 threads of them, whose short tiles waste little.
      const int64_t threads = *n * f_.usual <= kSmall ? 128 : *n * f_.usual <= kRowBytes ? 256 : 512;
      hold(p, {threads, vector_, 1024 / threads, true}, *n);
      return;
    }
    if (n && (hold_few(p, *n) || hold_copied(p, *n) || hold_medium(p, *n) || hold_wide(p, *n))) return;
    const bool wide = f_.usual > 2, two = f_.loaded_bytes() >= 2 * f_.usual;
    const bool several = f_.loaded_streams() > 1 && two && f_.usual == 2 && many_; // of fewer rows some are idle
    const int64_t bytes = n ? *n * f_.loaded_bytes() : 0, longest = wide && p.shift == 1 ? kWideTileBytes : kLeast;
    if (!n || (two ? bytes < (p.shift > 1 && !f_.beside_bytes() ? kLeast : kLong) : *n * f_.usual <= longest)) return;
    if (!f_.stores_rows() || f_.divides() || f_.usual == 1 || p.run == 1) return;
    const bool gain = wide && p.shift > 1 && f_.loads_beside() == 1;
    if (f_.row_groups().columns.size() != 1 || (f_.loads_beside() > 0 && (wide || !two) && !gain) || (two && wide) ||
        (p.shift > 1 && f_.loaded_bytes() > f_.usual && !f_.beside_bytes() && !several))
      return;
    const bool small = p.shift == 1 && !two && !wide && *n * f_.usual < kLong;
    const bool masked = p.shift > 1 && f_.beside_bytes();
    if (masked && *n + p.shift - 1 <= 3 * kReadAgain.threads * kReadAgain.each) {
      read_again(p);
      return;
    }
    const bool two_tiles = wide && !two && *n * f_.usual <= kLeast; // one of them in registers
    const int64_t each = small || masked || (two && p.shift > 1) ? vector_ : two || two_tiles || p.shift > 1 ? 16 : 32;
    const HeldRow held{kThreads, each, kBlocks, two || small};
    if (held.each * f_.live > kRegisters) return;
    BlockPlan holding = p;
    if (hold(holding, held, *n) >= (masked ? kMasked : wide && p.shift == 1 ? 1 : kMost)) p = std::move(holding);
  }
  // Rows of one stream, of which all that is kept lies in shared memory: copied there at once, each is under way as a
  // whole, and few registers let several blocks be there. Up to 64 KB three or four of them where that leaves room for
  // all tiles but one that does not end with the row, else two large ones, or one.
  [[nodiscard]] bool hold_copied(BlockPlan& p, int64_t length) const {
    constexpr int64_t kFew = 2;                          // rows of a multiprocessor
    constexpr int64_t kLeastOfGains = kRowBytes * 5 / 4; // shorter ones are as fast in a loop that reads again
    if (rows_ && *rows_ < kFew * f_.device.multiprocessors) return false;
    const int64_t bytes = length * f_.usual, beside = f_.loads_beside();
    const HeldRow large{512, 16, 2, false};
    if (f_.usual == 2 && beside == 0) {
      for (const int64_t blocks : {4, 3})
        if (bytes <= 2 * kRowBytes && copy(p, {256, 16, blocks, false}, length, true)) return true;
      return copy(p, large, length) || copy(p, {512, 16, 1, false}, length);
    }
    if (f_.usual == 2 && beside == 1 && bytes > kLeastOfGains) return copy(p, large, length);
    if (f_.usual == 4 && beside == 0 && bytes > 2 * kRowBytes) return copy(p, {512, 8, 2, false}, length);
    return false;
  }
  // Whether that is possible, and such blocks have room for all of a row. A row that ends with a tile is in shared
  // memory as a whole, if there is room; if not, its last tile is in registers, unless it is to be there `entirely`.
  bool copy(BlockPlan& p, const HeldRow& form, int64_t length, bool entirely = false) const {
    if (p.run == 1 || !f_.stores_rows() || f_.divides() || f_.row_groups().columns.size() != 1) return false;
    const int64_t tile = form.threads * form.each, tiles = (length + p.shift - 1 + tile - 1) / tile;
    const int64_t room = f_.tiles_in_shared(tile, f_.usual, form.blocks);
    if (tiles != (length + tile - 1) / tile) return false; // some rows have a tile more: none is known to be whole
    const bool ends = p.shift == 1 && length % tile == 0;
    if (tiles < 2 || tiles > room + (entirely && ends ? 0 : 1) || !f_.keeps_stream(online_)) return false;
    set(p, form);
    p.keep = static_cast<int>(ends ? std::min(tiles, room) : tiles - 1);
    p.copied = true;
    p.reads = f_.reads(true);
    return true;
  }
  // Many of them instead of the largest tile in registers, if they fill it, or are shifted.
  [[nodiscard]] bool copied_tile(BlockPlan& p, int64_t length, bool aligned) const {
    const int64_t kLeast = (aligned ? 28 : 24) << 10, bytes = length * f_.usual;
    if (!many_ || f_.usual != 2 || f_.loads_beside() > 0 || bytes <= kLeast || bytes > kRowBytes) return false;
    return hold_copied(p, length);
  }
  // Many rows of one 16-bit stream, a little too long for a tile: four blocks hold one each. Rows of several axes, with
  // their gains, in shorter tiles.
  [[nodiscard]] bool hold_medium(BlockPlan& p, int64_t length) const {
    const bool axes = f_.row_groups().columns.size() > 1;
    if (f_.usual != 2 || f_.loaded_bytes() > 2 || (f_.loads_beside() > 0 && !axes)) return false;
    if (!holdable(p)) return false;
    if (length * f_.usual <= kRowBytes || length * f_.usual > 2 * kRowBytes) return false;
    constexpr double kMost = 0.75; // of a shifted row
    BlockPlan holding = p;
    const double held = hold(holding, {256, axes ? vector_ : 2 * vector_, 4, !axes}, length);
    if (held < (p.shift > 1 && !axes ? kMost : 1)) return false;
    if (held < 1) holding.ahead = false;
    p = std::move(holding);
    return true;
  }
  // Many shifted rows of two 32-bit streams, too long for a tile: four blocks hold what is made of one each, or two
  // large ones.
  [[nodiscard]] bool hold_wide(BlockPlan& p, int64_t length) const {
    if (f_.usual != 4 || f_.loaded_streams() != 2 || f_.masks() || p.shift == 1 || !holdable(p)) return false;
    for (const HeldRow& held :
         {HeldRow{256, 2 * vector_, 4, false}, HeldRow{512, 2 * vector_, 2, f_.loads_beside() < 2}})
      if (BlockPlan holding = p; hold(holding, held, length) >= 1) {
        p = std::move(holding);
        return true;
      }
    return false;
  }
  // Three large tiles, of which the last round finds the last one in registers and the others in the L2.
  static constexpr HeldRow kReadAgain{256, 32, 2, true};
  void read_again(BlockPlan& p) const {
    set(p, kReadAgain);
    p.reads = f_.reads(true);
  }
  // Many shifted rows of narrow elements with masks, of which a tile would have more than a third beyond the row: short
  // tiles are read again, from the L1 and the L2, rather than held.
  [[nodiscard]] std::optional<BlockPlan> short_tiles(BlockPlan p, int64_t length, bool aligned) const {
    constexpr double kFilled = 0.7; // of the tile, at most
    if (aligned || !f_.narrow_masks() || !f_.stores_rows() || f_.divides() || f_.loads_beside() > 0) return {};
    if (!many_ || p.run == 1 || length * f_.usual <= 2 * kWarpRowBytes || length * f_.usual > kRowBytes) return {};
    if (static_cast<double>(length) > kFilled * static_cast<double>(power_above(length))) return {};
    const bool half = length * f_.usual <= kRowBytes / 2;
    const int64_t resident = half ? 10 : *rows_ <= 8 * f_.device.multiprocessors ? 8 : 6;
    set(p, {128, half ? vector_ : 2 * vector_, resident, true});
    p.reads = tile::Caching::Normal;
    return p;
  }
  // Rows of one 16-bit stream that leave a part of their tile idle: eight blocks of 128 threads on a multiprocessor
  // hold one each, where the tile would leave 512 threads.
  [[nodiscard]] std::optional<BlockPlan> hold_lean(BlockPlan p, int64_t length, bool aligned) const {
    if (f_.usual != 2 || f_.loaded_bytes() > 2 || f_.loads_beside() > 1 || !f_.stores_rows() || f_.divides()) return {};
    if (!rows_ || f_.strided_rows() || length * f_.usual <= kRowBytes / 2) return {};
    if (length * f_.usual > kRowBytes || f_.kept_element(online_) == 0) return {};
    // So much is idle that the tile's registers are few, but for a gain's.
    if (f_.loads_beside() == 0 && 4 * length <= 3 * power_above(length)) return {};
    if (!many_) {
      // Few rows, of which large tiles, two on a multiprocessor, would not run all at a time.
      const bool half = *rows_ > 2 * f_.device.multiprocessors && aligned && f_.loads_beside() == 0;
      if (half && p.run > 1 && hold(p, {256, vector_, 4, true}, length) >= 1) return p;
      return {};
    }
    const int64_t each = f_.loads_beside() > 0 ? vector_ : 2 * vector_; // a gain takes registers
    // Larger blocks where all of these would be one turn and a part of another.
    const bool uneven = *rows_ > 8 * f_.device.multiprocessors && *rows_ < 16 * f_.device.multiprocessors;
    if (p.run > 1 && uneven && f_.loads_beside() == 0 && hold(p, {256, vector_, 4, true}, length) >= 1) return p;
    if (p.run == 1 || hold(p, {128, each, 8, true}, length) < 1) return {};
    return p;
  }
  // Shifted rows of a 32-bit stream with masks of bytes beside it, which would be accessed one by one: small blocks
  // hold all of one, in short tiles that start at whole accesses of both.
  [[nodiscard]] std::optional<BlockPlan> hold_masked(BlockPlan p, int64_t length, bool aligned) const {
    if (aligned || !f_.beside_bytes() || f_.loads_beside() > 0 || !holdable(p)) return {};
    if (length * f_.usual <= kWarpRowBytes || length * f_.usual > kRowBytes) return {};
    for (int64_t threads : {128, 256})
      if (hold(p, {threads, vector_, 1024 / threads, true}, length) >= 1) return p;
    return {};
  }
  // Rows of a 32-bit stream with a gain, which would leave a quarter of a tile idle: four blocks hold one each. Gain
  // and bias of rows of whole accesses take registers of the next tile.
  [[nodiscard]] std::optional<BlockPlan> hold_gain(BlockPlan p, int64_t length, bool aligned) const {
    if (f_.usual != 4 || f_.loaded_bytes() > 4 || f_.loads_beside() < 1 || (!aligned && f_.loads_beside() > 1))
      return {};
    if (!holdable(p)) return {};
    if (f_.row_groups().columns.size() != 1 || length * f_.usual <= kRowBytes || 4 * length > 3 * power_above(length))
      return {};
    if (hold(p, {256, (aligned ? 2 : 4) * vector_, 4, !aligned}, length) < 1) return {};
    return p;
  }
  // Of two 16-bit streams with a gain and a bias, whose sum is stored as well, and which would leave a quarter of the
  // largest tile idle: four blocks.
  [[nodiscard]] std::optional<BlockPlan> hold_norm(BlockPlan p, int64_t length, bool aligned) const {
    const auto stores = std::count_if(f_.streams.begin(), f_.streams.end(),
                                      [&](const Stream& s) { return s.store && s.count >= f_.largest / 2; });
    if (!aligned || f_.usual != 2 || f_.loaded_streams() < 2 || f_.loads_beside() < 2 || stores < 2) return {};
    if (!holdable(p)) return {};
    if (f_.row_groups().columns.size() != 1 || length * f_.usual <= kRowBytes / 2 || length * f_.usual > kRowBytes)
      return {};
    if (4 * length > 3 * power_above(length) || hold(p, {256, vector_, 4, true}, length) < 1) return {};
    return p;
  }
  // Shifted rows of two 32-bit streams for which the largest tile would be needed, of which a multiprocessor has two:
  // as many blocks of twice the threads hold one each, and load the next tile meanwhile.
  [[nodiscard]] std::optional<BlockPlan> hold_two(BlockPlan p, int64_t length, bool aligned) const {
    if (aligned || f_.usual != 4 || f_.loaded_streams() != 2 || f_.masks() || f_.loads_beside() > 2) return {};
    if (!holdable(p)) return {};
    if (length * f_.usual <= kRowBytes / 2 || length * f_.usual > kRowBytes) return {};
    const bool bias = f_.loads_beside() > 1; // takes the registers of the next tile
    if (hold(p, bias ? HeldRow{256, 2 * vector_, 4, false} : HeldRow{512, 2 * vector_, 2, true}, length) < 1) return {};
    return p;
  }
  // Rows that have a multiprocessor each: a block of 1024 threads has all of its shared memory and, for one tile, of
  // its registers. True where that holds all of a row.
  [[nodiscard]] bool hold_few(BlockPlan& p, int64_t length) const {
    constexpr int64_t kThreads = 1024, kMostElements = 16, kValues = 40; // of a thread: of 64 registers
    constexpr double kBusy = 0.8; // of the multiprocessors, at least: the rest has nothing to do
    const int64_t processors = f_.device.multiprocessors;
    if (!rows_ || *rows_ > processors || static_cast<double>(*rows_) < kBusy * static_cast<double>(processors))
      return false;
    // What several narrow streams wait for is arithmetic.
    if (length * f_.usual <= 2 * kRowBytes || (f_.usual <= 2 && f_.loaded_bytes() > f_.usual)) return false;
    if (!f_.stores_rows() || f_.divides() || f_.usual == 1 || p.run == 1 || f_.row_groups().columns.size() != 1)
      return false;
    if (p.shift > 1 && f_.loads_beside() > 1) return false; // takes more registers
    const int beside = f_.loads_beside();                   // gains take registers, too
    int64_t each = beside == 0 ? kMostElements : beside * f_.usual > 4 ? vector_ : kMostElements / 2;
    while (each > vector_ && each * f_.live + each * f_.loaded_halves() / 2 > kValues) each /= 2;
    BlockPlan holding = p;
    if (hold(holding, {kThreads, each, 1, false}, length) < 1) return false;
    p = std::move(holding);
    return true;
  }
  // Where half of a tile takes more registers than there are: of two streams and more, of rows that are not short, and,
  // of the longest ones, where a gain is read along with each element. Above 32 KB it was not timed.
  [[nodiscard]] bool half_is_much(int64_t row) const {
    const int64_t bytes = row * f_.usual;
    if (f_.loaded_bytes() >= 2 * f_.usual) return bytes > 2 * kWarpRowBytes;
    return bytes > (f_.usual <= 2 && f_.loads_beside() == 1 ? kRowBytes * 3 / 4 : kRowBytes);
  }
  // Many shifted rows just below a power of two, of 8191 elements: a tile for all of one, with what is before its
  // start, would be twice as long.
  [[nodiscard]] bool tile_is_idle(int64_t row) const {
    const int64_t bytes = row * f_.usual;
    return many_ && bytes > kWarpRowBytes && bytes <= 2 * kRowBytes && f_.stores_rows() && row % vector_ != 0 &&
           power_above(row + row_shift(f_, false) - 1) > power_above(row) && !f_.divides() &&
           f_.kept_element(online_) > 0;
  }

private:
  // Many rows, read in whole accesses, of which a later round needs something for each element.
  [[nodiscard]] bool holdable(const BlockPlan& loop) const {
    return many_ && loop.run > 1 && f_.stores_rows() && !f_.divides() && f_.kept_element(online_) > 0;
  }

  const BlockFacts& f_;
  const bool online_;
  const int64_t vector_; // elements of one access along a row
  const std::optional<int64_t> rows_;
  const bool many_; // four a multiprocessor
};

} // namespace

bool hold_row(const BlockFacts& facts, BlockPlan& plan, const HeldRow& held, int64_t length, bool online) {
  return HeldRowPlanner(facts, online).hold(plan, held, length) > 0;
}
bool copy_row(const BlockFacts& facts, BlockPlan& plan, const HeldRow& held, int64_t length, bool online) {
  return HeldRowPlanner(facts, online).copy(plan, held, length);
}
void hold_in_loop(const BlockFacts& facts, BlockPlan& plan, std::optional<int64_t> length, bool online) {
  HeldRowPlanner(facts, online).in_loop(plan, length);
}
std::optional<BlockPlan> held_instead_of_tile(const BlockFacts& facts, const BlockPlan& loop, int64_t length,
                                              bool aligned, bool online) {
  const HeldRowPlanner planner(facts, online);
  if (BlockPlan copied = loop; planner.copied_tile(copied, length, aligned)) return copied;
  if (auto lean = planner.hold_lean(loop, length, aligned)) return lean;
  if (auto gain = planner.hold_gain(loop, length, aligned)) return gain;
  if (auto norm = planner.hold_norm(loop, length, aligned)) return norm;
  if (auto two = planner.hold_two(loop, length, aligned)) return two;
  if (auto shorter = planner.short_tiles(loop, length, aligned)) return shorter;
  return planner.hold_masked(loop, length, aligned);
}
bool tile_is_wasteful(const BlockFacts& facts, int64_t row, bool online) {
  const HeldRowPlanner planner(facts, online);
  return planner.tile_is_idle(row) && planner.half_is_much(row);
}

} // namespace tessera
