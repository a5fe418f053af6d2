#include "codegen/schedule/contraction_space.h"
#include "codegen/layout/dot.h"
#include "codegen/schedule/contraction.h"
#include "runtime/tensor_map.h"
#include <algorithm>
#include <bit>
#include <set>

namespace tessera {
namespace {

class ContractionSpace {
public:
  ContractionSpace(const BlockFacts& facts, const SizedFacts& sized, const VisitSchedule& visit)
      : f_(facts), s_(sized), visit_(visit) {}

  // Rows and columns of the tile along all axes of a factor, or along its last one with the others as points; rows along
  // all axes as a box as well, for bulk copies; the depth along all reduced axes, or along the one that is contiguous in a
  // factor with the others as steps. Rows that the columns of a fragment hold may be the columns: a fragment has more
  // rows than columns, and most would be empty. So may rows where the columns' factor is computed: warpgroups compute a
  // left one.
  void run() {
    const Contraction& c = *f_.contraction;
    const size_t right = c.groups ? c.groups->factor : stored_along(c.axes[0]) && !stored_along(c.axes[1]) ? 0 : 1;
    uint64_t contiguous = 0; // reduced axes
    for (size_t i = 0; i < s_.extents.size(); ++i)
      for (const Stream& s : f_.streams)
        if (f_.is_row(i) && !s.store && f_.contiguous(s, i)) contiguous |= uint64_t{1} << i;
    const uint64_t inner = contiguous != 0 ? last(contiguous) : last(f_.d.row_mask);
    for (const uint64_t rows : std::set<uint64_t>{c.axes[1 - right], last(c.axes[1 - right])})
      for (const uint64_t columns : std::set<uint64_t>{c.axes[right], last(c.axes[right])})
        for (const uint64_t depth : std::set<uint64_t>{f_.d.row_mask, inner}) {
          tiles(rows, columns, depth, false);
          if (std::popcount(rows) > 1 && std::popcount(rows) < kTensorMapRank) tiles(rows, columns, depth, true);
          if (s_.count(rows) <= Contraction::kFragmentColumns || (c.computed[right] && !c.computed[1 - right]))
            tiles(columns, rows, depth, false);
        }
  }

private:
  static uint64_t last(uint64_t axes) { return std::bit_floor(axes); }
  [[nodiscard]] int sums() const { return f_.contraction->sums(); }
  [[nodiscard]] WarpgroupNeeds needs(const Schedule& p) const {
    return f_.contraction->warpgroup_needs(p.placement.row_axes, p.placement.column_axes);
  }
  [[nodiscard]] bool by_warpgroups(const Schedule& p) const {
    return tessera::by_warpgroups(p.tile, needs(p), f_.device);
  }
  // Threads with few sums are worth it where they compute a factor.
  [[nodiscard]] bool computes_left(const Schedule& p) const { return needs(p).left_bits > 0 && by_warpgroups(p); }
  [[nodiscard]] bool stored_along(uint64_t axes) const {
    for (const Stream& s : f_.streams)
      for (size_t i = 0; i < s_.extents.size() && s.store; ++i)
        if ((axes >> i & 1) && f_.contiguous(s, i)) return true;
    return false;
  }
  // Extents of a tile along these axes, from `least` up to `most`.
  [[nodiscard]] std::vector<int64_t> sizes(uint64_t axes, int64_t least, int64_t most) const {
    const int64_t whole = std::max(least, power_above(s_.count(axes)));
    std::vector<int64_t> out;
    for (int64_t n = least; n <= std::min(most, whole); n *= 2) out.push_back(n);
    return out;
  }
  // The box of so many positions that covers these axes in the fewest tiles, of these the one that is longest along the
  // last axes: their extents as Placement::row_box.
  [[nodiscard]] uint64_t box(uint64_t axes, int64_t positions) const {
    std::vector<int64_t> extents; // the last axis first
    for (size_t i = s_.extents.size(); i-- > 0;)
      if (axes >> i & 1) extents.push_back(s_.extents[i]);
    uint64_t best = 0;
    int64_t fewest = INT64_MAX;
    const auto search = [&](const auto& self, size_t at, int bits, int64_t tiles, uint64_t taken) -> void {
      if (at == extents.size()) {
        if (bits == 0 && tiles < fewest) fewest = tiles, best = taken;
        return;
      }
      for (int here = bits; here >= 0; --here) {
        const int64_t of_axis = (extents[at] + (int64_t{1} << here) - 1) >> here;
        self(self, at + 1, bits - here, tiles * of_axis, taken | static_cast<uint64_t>(here) << (kBoxBits * at));
      }
    };
    search(search, 0, std::countr_zero(static_cast<uint64_t>(positions)), 1, 0);
    return best;
  }
  void tiles(uint64_t row_axes, uint64_t column_axes, uint64_t depth_axes, bool as_box) {
    constexpr int64_t kMaxSide = 256, kMaxRatio = 8, kLeastEach = 8, kMaxEach = 128;
    const int64_t least_depth = layout::kMmaDepthBytes * 8 / info(f_.contraction->dtype).bits;
    Schedule p = BlockFacts::schedule(ScheduleKind::BlockContraction, 1, 1, 1);
    p.placement.row_axes = row_axes, p.placement.column_axes = column_axes, p.placement.depth_axes = depth_axes;
    for (const int64_t rows : sizes(row_axes, Contraction::kFragmentRows, kMaxSide)) {
      if (as_box) p.placement.row_box = box(row_axes, rows);
      for (const int64_t columns : sizes(column_axes, Contraction::kFragmentColumns, kMaxSide))
        for (const int64_t depth : sizes(depth_axes, least_depth, f_.contraction->max_depth()))
          for (const int64_t threads : {64, 128, 256}) {
            const int64_t each = rows * columns / threads;
            p.tile.rows = static_cast<int>(rows), p.tile.columns = static_cast<int>(columns);
            p.tile.depth = static_cast<int>(depth), p.tile.warps = static_cast<int>(threads / 32);
            if (each < kLeastEach && !computes_left(p)) continue;
            if (std::max(rows, columns) > kMaxRatio * std::min(rows, columns)) continue;
            if (each * sums() > kMaxEach && !by_warpgroups(p)) continue;
            if (!as_box || by_warpgroups(p)) stages(p);
          }
    }
  }
  void stages(Schedule p) {
    constexpr int kGroup = 8; // tiles
    const bool grid =
        s_.count(p.placement.row_axes) > p.tile.rows && s_.count(p.placement.column_axes) > p.tile.columns;
    p.traversal.group_rows = grid ? kGroup : 1;
    const int64_t tiles = this->tiles(p);
    const std::set<int64_t> splits = this->splits(p, tiles);
    for (const int stages : {2, 3, 4}) {
      p.traversal.num_stages = stages;
      const SharedNeeds needs = shared_needs(f_, p);
      if (needs.resident + needs.exchange > f_.device.shared_bytes) break;
      for (const int64_t split : splits) {
        p.cooperation.split_k = static_cast<int>(split);
        p.cooperation.max_blocks = 0;
        clusters(p, tiles);
        const bool all_at_once = split > 1 && tiles * split <= f_.device.multiprocessors;
        if (!by_warpgroups(p) || all_at_once) continue;
        p.cooperation.max_blocks = f_.device.multiprocessors; // which take the tiles in turn
        clusters(p, tiles);
      }
    }
  }
  // Blocks by themselves, and in clusters where they are more than one wave.
  void clusters(Schedule p, int64_t tiles) {
    visit_(p, 1);
    const bool rows = s_.count(p.placement.row_axes) > p.tile.rows;
    if (!by_warpgroups(p) || p.cooperation.split_k > 1 || !rows || tiles <= f_.device.multiprocessors) return;
    if (f_.contraction->groups || f_.contraction->range) return;
    p.cooperation.cluster = Contraction::kMaxCluster;
    p.cooperation.max_blocks -= p.cooperation.max_blocks % p.cooperation.cluster;
    visit_(p, 1);
  }
  [[nodiscard]] int64_t tiles(const Schedule& p) const {
    const uint64_t rows = p.placement.row_axes, columns = p.placement.column_axes,
                   points = ((uint64_t{1} << s_.extents.size()) - 1) & ~(s_.row_mask | rows | columns);
    return s_.count(points) * quotient_above(s_.count(rows), p.tile.rows) *
           quotient_above(s_.count(columns), p.tile.columns);
  }
  // Numbers of blocks that share a tile: one, and as many as fill the multiprocessors a few times. Each has a few steps
  // of the depth, as its first one waits for memory.
  [[nodiscard]] std::set<int64_t> splits(const Schedule& p, int64_t tiles) const {
    constexpr int64_t kLeastSteps = 2;
    const int64_t steps = s_.count(s_.row_mask & ~p.placement.depth_axes) *
                          quotient_above(s_.count(p.placement.depth_axes), p.tile.depth);
    std::set<int64_t> out{1};
    if (f_.contraction->groups || f_.contraction->range) return out;
    for (const int64_t waves : {1, 2, 4}) {
      const int64_t split = std::min({waves * f_.device.multiprocessors / std::max<int64_t>(1, tiles),
                                      steps / kLeastSteps, int64_t{Contraction::kMaxSplit}});
      if (split > 1) out.insert(quotient_above(steps, quotient_above(steps, split)));
    }
    return out;
  }
  static int64_t quotient_above(int64_t n, int64_t by) { return (n + by - 1) / by; }

  const BlockFacts& f_;
  const SizedFacts& s_;
  const VisitSchedule& visit_;
};

} // namespace

void for_each_contraction_schedule(const BlockFacts& facts, const SizedFacts& sized, const VisitSchedule& visit) {
  ContractionSpace(facts, sized, visit).run();
}

} // namespace tessera
