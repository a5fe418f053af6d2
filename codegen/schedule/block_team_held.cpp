// Long rows of which the GPU does not hold all at a time: which blocks hold one, so that it is read once. What led to
// these choices stands in docs/schedules.md and docs/performance.md.
#include "codegen/schedule/block_facts.h"
#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera {
namespace {

constexpr int64_t kHeldRowBytes = 156 << 10;       // of one stream, which no block holds, or of two that begin anywhere
constexpr int64_t kIdleRowBytes = 120 << 10;       // of one of 16 bits, where blocks that hold one would leave room
constexpr int64_t kGainRowBytes = 64 << 10;        // of one of 32 bits with gains, or of rows of several axes
constexpr int64_t kNarrowGainRowBytes = 120 << 10; // of one of 16 bits with a gain
constexpr int64_t kLargeTeam = 48;                 // meets late: rather larger shares
constexpr double kWorth = 1.12;                    // what smaller blocks, of which more meet, are to gain

class HeldPlanner {
public:
  HeldPlanner(const BlockFacts& facts, int64_t places, bool aligned, bool online)
      : f_(facts), places_(places), aligned_(aligned), online_(online), kept_bytes_(facts.kept_element(online)),
        rows_(facts.constant(facts.points(AxisRole::Outer))), several_(facts.loaded_streams() > 1),
        wide_(facts.usual > 2) {}

  [[nodiscard]] std::optional<HeldTeam> run() const {
    const int64_t bytes = places_ * f_.loaded_bytes();
    // Many rows that a block holds need no team.
    constexpr int64_t kMany = 4; // of a multiprocessor
    const auto many = static_cast<double>(kMany * f_.device.multiprocessors);
    if (!(several_ && !aligned_ && !wide_) && bytes < kLongRowBytes && f_.guess(f_.points(AxisRole::Outer)) >= many &&
        row_plans(f_, online_).front().keep > 0)
      return std::nullopt;
    if (kept_bytes_ == 0) return std::nullopt;
    if (auto t = instead_of_blocks()) return t;
    if (bytes < least_bytes()) return std::nullopt;
    const std::vector<HeldTeam> list = gains() && bytes < kHeldRowBytes ? std::vector{tile(256, 4, 32)}
                                       : aligned_                       ? of_whole_accesses()
                                                                        : shifted();
    for (const HeldTeam& given : list) {
      HeldTeam t = given;
      t.keep = std::min(t.keep, fitting_tiles(t));
      const int64_t team = members(t);
      if (team > kLargeTeam && (given.keep == 0 || given.keep == kAllTiles) && &given != &list.back()) continue;
      if (team > kLargeTeam && 2 * team > t.resident * f_.device.multiprocessors) continue;
      return in_even_turns(t);
    }
    return std::nullopt;
  }

private:
  // Rows of one stream with gains that no block holds: of 32 bits, or long ones of several axes.
  [[nodiscard]] bool gains() const {
    return (wide_ || f_.row_groups().columns.size() > 1) && !several_ && aligned_ && f_.loads_beside() > 0;
  }
  // Shorter rows are read again.
  [[nodiscard]] int64_t least_bytes() const {
    if (gains()) return kGainRowBytes;
    if (several_) return aligned_ ? kLongRowBytes : kHeldRowBytes;
    if (!wide_ && aligned_ && f_.loads_beside() == 1) return kNarrowGainRowBytes;
    return aligned_ || f_.loads_beside() == 0 ? kHeldRowBytes : kLongRowBytes;
  }
  // Of whole accesses many a thread: loads under way, and a tile in registers that counts. A gain and a bias would take
  // as many registers again.
  [[nodiscard]] std::vector<HeldTeam> of_whole_accesses() const {
    constexpr int64_t kMost = kRegisters * 7 / 4;
    const int64_t many = f_.fitting(f_.loads_beside() > 1 ? 16 : 32, kMost);
    if (f_.masks()) return masked();
    // Of rows that are just too long for a block, small shares, if messages tell of them.
    const HeldTeam shares{128, 8, f_.fitting(16), 3};
    if (!wide_ && !several_ && places_ * f_.loaded_bytes() < kHeldRowBytes && members(shares) <= kToldBesideOthers)
      return {shares};
    // 1024 threads leave 64 registers, which large tiles of one stream take up to the last one: with the masks of rows
    // that end within a tile they would be 80, and of 32 bits twice as many.
    const bool ends_within = places_ % (256 * many) != 0;
    const int64_t less = f_.fitting(16);
    if (ends_within && f_.lean()) return {loop(128, 8, less), loop(256, 4, many)};
    if ((ends_within || f_.loads_beside() > 1) && wide_ && several_) return {{128, 4, less, 1}, loop(256, 4, less)};
    if (ends_within && wide_) return {loop(256, 4, less)};
    return {loop(256, 4, many), loop(256, 4, less)};
  }
  // A tile each, and nothing in shared memory. Narrow elements of rows that end within a tile take more registers than
  // two large blocks have: smaller tiles, or, of teams that are not told by messages, loops whose last one is full.
  [[nodiscard]] std::vector<HeldTeam> masked() const {
    const HeldTeam large = tile(512, 2, 32), small = tile(256, 4, 32);
    if (const HeldTeam half{256, 4, f_.fitting(16), 0}; !f_.narrow_masks())
      return {busy(half) > kWorth * busy(small) ? half : small};
    if (places_ % (large.threads * large.each) == 0) return {large};
    if (members(small) <= kToldBesideOthers) return {small};
    const HeldTeam four{256, 4, f_.fitting(16), 4}, two{256, 4, f_.fitting(16), 2};
    return {filled(four) >= filled(two) ? four : two};
  }
  [[nodiscard]] std::vector<HeldTeam> shifted() const {
    const int64_t few = f_.fitting(kShiftedElements);
    if (f_.lean() && f_.strided_rows()) return {strided()};
    if (f_.lean()) return {loop(128, 8, f_.fitting(16)), loop(256, 4, few)};
    if (wide_ && several_) return {loop(128, 8, few), loop(256, 4, few)};
    if (wide_ && f_.loads_beside() == 1) return {{128, 4, f_.fitting(32), 1}};
    // Where all teams are one turn and a part of another of what runs at a time, smaller shares.
    const HeldTeam large = loop(256, 4, few), small = loop(128, 8, few), least = {128, 4, f_.fitting(16), 3};
    const bool uneven = turns(large) > 1 && turns(large) < 2;
    if (f_.narrow_masks()) return {loop(128, 4, f_.fitting(16)), large};
    if (wide_ && f_.loads_beside() > 1 && uneven) return {least};
    constexpr int64_t kLongGainBytes = 500 << 10; // large tiles, whose gains are read together
    if (!several_ && !wide_ && f_.loads_beside() == 1 && places_ * f_.loaded_bytes() >= kLongGainBytes) {
      const HeldTeam much{256, 4, f_.fitting(16), 6, false}, half{128, 4, f_.fitting(16), 6, false};
      return {busy(half) > kWorth * busy(much) ? half : much, large};
    }
    if (!several_ || wide_) return {large, loop(512, 2, few)};
    if (uneven) return {least};
    // Of two narrow streams smaller blocks where the last of larger ones, or their last turn, would have little.
    return {busy(small) > kWorth * busy(large) ? small : large, large, least};
  }

  // Shifted rows of 16 bits that a block alone would hold most of, a few more than multiprocessors: most of these would
  // have one block where there is room for two. Large shares, if all rows then run at a time; of strided rows with room
  // for the L1, which has what lies between the elements, or else smaller ones.
  [[nodiscard]] std::optional<HeldTeam> instead_of_blocks() const {
    constexpr double kFew = 1.25; // rows of a multiprocessor
    const int64_t bytes = places_ * f_.loaded_bytes(), processors = f_.device.multiprocessors;
    if (aligned_ || !f_.lean() || bytes < kIdleRowBytes || bytes >= kHeldRowBytes) return std::nullopt;
    if (!rows_ || *rows_ <= processors || static_cast<double>(*rows_) > kFew * static_cast<double>(processors))
      return std::nullopt;
    HeldTeam large{128, 4, 32, f_.strided_rows() ? 5 : kAllTiles};
    large.keep = std::min(large.keep, fitting_tiles(large));
    if (turns(large) <= 1) return large;
    if (f_.strided_rows()) return HeldTeam{128, 4, 32, 3};
    return std::nullopt;
  }
  // Of which every second element is read: small teams that hold much each, or else many small shares.
  [[nodiscard]] HeldTeam strided() const {
    constexpr int64_t kSmallTeam = 6;
    HeldTeam large = loop(256, 2, f_.fitting(16));
    large.keep = fitting_tiles(large);
    return members(large) <= kSmallTeam ? large : HeldTeam{128, 8, f_.fitting(16), 3};
  }
  [[nodiscard]] HeldTeam loop(int64_t threads, int64_t resident, int64_t each) const {
    return {threads, resident, each, kAllTiles};
  }
  [[nodiscard]] HeldTeam tile(int64_t threads, int64_t resident, int64_t each) const {
    return {threads, resident, f_.fitting(each), 0};
  }
  [[nodiscard]] int64_t fitting_tiles(const HeldTeam& t) const {
    return f_.tiles_in_shared(t.threads * t.each, kept_bytes_, t.resident);
  }
  [[nodiscard]] int64_t members(const HeldTeam& t) const {
    const int64_t share = (t.keep + 1) * t.threads * t.each;
    return (places_ + share - 1) / share;
  }
  // The part of what a team's members have room for that the row takes.
  [[nodiscard]] double filled(HeldTeam t) const {
    t.keep = std::min(t.keep, fitting_tiles(t));
    return static_cast<double>(places_) / static_cast<double>(members(t) * (t.keep + 1) * t.threads * t.each);
  }
  // The part of the time that members are busy: of what they have room for, in all turns.
  [[nodiscard]] double busy(const HeldTeam& t) const {
    const double all = turns(t);
    return all <= 1 ? filled(t) : filled(t) * all / std::ceil(all);
  }
  // Where all teams are a few turns of what runs at a time, and a little, that little would take as long as another:
  // smaller shares.
  [[nodiscard]] HeldTeam in_even_turns(HeldTeam t) const {
    constexpr double kBusy = 0.7; // of the last turn and those before it
    if (turns(t) > 1 && turns(t) < kBusy * std::ceil(turns(t))) t.keep /= 2;
    return t;
  }
  // All teams over what runs at a time; 0 where the number of rows is not known.
  [[nodiscard]] double turns(HeldTeam t) const {
    t.keep = std::min(t.keep, fitting_tiles(t));
    return static_cast<double>(rows_.value_or(0) * members(t)) /
           static_cast<double>(t.resident * f_.device.multiprocessors);
  }

  const BlockFacts& f_;
  const int64_t places_;
  const bool aligned_, online_;
  const int64_t kept_bytes_;
  const std::optional<int64_t> rows_;
  const bool several_, wide_; // streams; more than 16 bits
};

} // namespace

std::optional<HeldTeam> held_team(const BlockFacts& facts, int64_t places, bool aligned, bool online) {
  return HeldPlanner(facts, places, aligned, online).run();
}

} // namespace tessera
