#include "codegen/schedule/space.h"
#include "codegen/schedule/contraction_space.h"
#include "codegen/schedule/cooperation.h"
#include "codegen/schedule/host_space.h"
#include "codegen/schedule/online.h"
#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

namespace tessera {
namespace {

constexpr int64_t kThreads[] = {32, 64, 128, 256, 512, 1024};
constexpr int64_t kRegisterBounds[] = {32, 40, 48, 64, 80, 96, 128};
constexpr int64_t kMaxEach = 64;       // elements of a thread's tile
constexpr int64_t kMaxTile = 64 << 10; // elements of a tile that holds a row
constexpr int64_t kSomeRow = 512;      // elements of a row whose length is not known
// Shared memory of a block for exchanges next to resident tiles (codegen/llvm/gpu_hazards.h).
constexpr int64_t kExchangeBytes = 16 << 10;
constexpr int64_t kMaxMembers = 8192; // blocks that share a row

class Space {
public:
  Space(const BlockFacts& facts, const SizedFacts& sized, const CallSizes& sizes, bool online,
        const VisitSchedule& visit)
      : f_(facts), s_(sized), sizes_(sizes), online_(online), visit_(visit) {}

  void run() {
    if (s_.extents.empty()) return offer(BlockFacts::schedule(ScheduleKind::BlockFlat, 1, 1, 1));
    if (!f_.d.reduces) return flat();
    const bool along = f_.is_row(static_cast<size_t>(f_.contiguous_axis));
    Domain d = f_.d;
    for (const OnlineSum& sum : find_online(f_.nest, d)) sums_online_ |= sum.kind != OnlineSum::Kind::None;
    if (s_.window) windows(*s_.window);
    if (f_.contraction) for_each_contraction_schedule(f_, s_, [&](const Schedule& p, int64_t) { offer(p); });
    if (along) {
      rows();
      cooperative_rows();
    } else {
      columns();
      column_groups();
    }
  }

private:
  [[nodiscard]] int64_t extent(size_t axis) const { return s_.extents[axis]; }
  [[nodiscard]] int64_t count(uint64_t axes) const { return s_.count(axes); }
  [[nodiscard]] static uint64_t bit(size_t axis) { return uint64_t{1} << axis; }
  [[nodiscard]] static bool one(uint64_t axes) { return std::has_single_bit(axes); }
  void offer(Schedule p, int64_t blocks_per_row = 1) {
    p.traversal.online = fold_online_ && (p.traversal.loop || p.kind == ScheduleKind::BlockCooperative);
    visit_(p, blocks_per_row);
  }
  // Offers the schedule as it is, and with bounds on registers that let more blocks be resident.
  void offer_resident(Schedule p) {
    p.access.min_blocks = 0;
    offer(p);
    int before = 0;
    for (int64_t registers : kRegisterBounds) {
      p.access.min_blocks = static_cast<int>(f_.device.registers / (32 * p.tile.warps * registers));
      if (p.access.min_blocks >= 2 && p.access.min_blocks <= f_.device.resident_blocks &&
          32 * p.access.min_blocks * p.tile.warps <= f_.device.resident_threads && p.access.min_blocks != before)
        offer(p);
      before = p.access.min_blocks;
    }
  }

  // All loops in the order of memory.
  void offer_forward(Schedule p) {
    p.traversal.serpentine = false;
    offer(p);
  }

  // ---- without reductions
  void flat() {
    const auto c = static_cast<size_t>(f_.contiguous_axis);
    for (size_t i = 0; i < s_.extents.size(); ++i)
      if (i != c) order_.push_back(i);
    order_.push_back(c);
    one_run();
    if (order_.size() > 1) {
      vectors(c);
      rows_of_run(c);
      shared_operands(c);
      for (size_t d = 0; d < s_.extents.size(); ++d)
        if (d != c && contiguous_instead(d, c)) transposed(d, c);
    }
  }
  // Tiles of `width` columns for each number of threads and elements of a thread.
  void tiles(Schedule p, const std::vector<int64_t>& widths) {
    for (int64_t threads : kThreads)
      for (int64_t each = std::max<int64_t>(1, f_.vector / 2); each <= std::min(8 * f_.vector, kMaxEach); each *= 2)
        for (int64_t w : widths) {
          const int64_t elements = threads * each;
          if (w > elements || (w < elements && p.placement.row_axes == 0)) continue;
          p.tile.warps = static_cast<int>(threads / 32);
          p.tile.columns = static_cast<int>(w);
          p.tile.rows = static_cast<int>(elements / w);
          offer(p);
        }
  }
  void one_run() {
    Schedule p = BlockFacts::schedule(ScheduleKind::BlockFlat, 1, 1, 1);
    p.placement.column_axes = axis_bits(order_);
    p.traversal.unmasked_branch = f_.d.env.divisor(f_.points(AxisRole::Outer)) % f_.vector != 0;
    if (single_access()) p.access.load_hint = f_.reads(false);
    std::vector<int64_t> widths;
    for (int64_t w = 32; w <= 1024 * kMaxEach; w *= 2) widths.push_back(w);
    tiles(p, widths);
    if (order_.size() < 2 || f_.vector < 2 || f_.d.env.range(f_.extent(order_.back())).lo < f_.vector) return;
    p.tile.contiguous = static_cast<int>(f_.vector);
    tiles(p, widths);
  }
  // Whether the contiguous axis is known to be whole accesses.
  [[nodiscard]] bool single_access() const {
    return f_.multiple(f_.extent(static_cast<size_t>(f_.contiguous_axis)), f_.vector).known;
  }
  void vectors(size_t c) {
    for (int64_t v = f_.vector; v > 1; v /= 2) {
      if (extent(c) % v != 0) continue;
      Schedule p = BlockFacts::schedule(ScheduleKind::BlockFlat, 1, v, 1);
      p.placement.split_axis = static_cast<int>(c);
      for (size_t i : order_) p.placement.row_axes |= bit(i > c ? i + 1 : i);
      p.placement.column_axes = bit(c + 1);
      if (v == f_.vector) p.access.load_hint = f_.reads(false);
      tiles(p, {v});
    }
  }
  void rows_of_run(size_t c) {
    Schedule p = BlockFacts::schedule(ScheduleKind::BlockFlat, 1, 1, 1);
    p.placement.row_axes = axis_bits(std::span(order_).first(order_.size() - 1));
    p.placement.column_axes = bit(c);
    if (single_access()) p.access.load_hint = f_.reads(false);
    std::vector<int64_t> widths;
    for (int64_t w = std::min<int64_t>(16, power_above(extent(c)));
         w <= std::min<int64_t>(4096, power_above(extent(c))); w *= 2)
      widths.push_back(w);
    tiles(p, widths);
  }
  // Operands that do without outer axes are read once for the tile's rows, which lie along these axes.
  void shared_operands(size_t c) {
    uint64_t outer = 0;
    for (size_t i : order_)
      if (i != c) outer |= uint64_t{1} << i;
    std::set<uint64_t> met;
    for (const Stream& s : f_.streams) {
      const uint64_t along = outer & ~s.deps;
      if (s.store || !f_.contiguous(s, c) || along == 0 || !met.insert(along).second) continue;
      size_t first = order_.size();
      while (first > 0 && !(along >> order_[first - 1] & 1)) --first;
      while (first < order_.size() && !one_segment_from(first)) ++first;
      if (first == order_.size()) continue;
      Schedule p = BlockFacts::schedule(ScheduleKind::BlockFlat, 1, 1, 1);
      const uint64_t before = axis_bits(std::span(order_).first(first));
      p.placement.column_axes = axis_bits(std::span(order_).subspan(first));
      p.placement.row_axes = along & before;
      const bool grid = (before & ~along) != 0;
      if (p.placement.row_axes == 0 || (!grid && one(p.placement.column_axes))) continue;
      if (single_access()) p.access.load_hint = f_.reads(false);
      const int64_t width = count(p.placement.column_axes), height = count(p.placement.row_axes);
      for (int64_t threads : kThreads)
        for (int64_t w = std::min<int64_t>(32, power_above(width)); w <= std::min<int64_t>(4096, power_above(width));
             w *= 2)
          for (int64_t r = 1; r <= std::min<int64_t>(64, power_above(height)); r *= 2) {
            const int64_t each = r * w / threads;
            if (each < std::max<int64_t>(1, f_.vector / 2) || each > std::min(8 * f_.vector, kMaxEach)) continue;
            p.tile.rows = static_cast<int>(r);
            p.tile.columns = static_cast<int>(w);
            p.tile.warps = static_cast<int>(threads / 32);
            offer(p);
          }
    }
  }
  // Whether the axes from `first` on in order_ are one contiguous segment to each access that moves with them.
  [[nodiscard]] bool one_segment_from(size_t first) const {
    for (const SizedStream& s : s_.streams) {
      uint64_t bits = 0;
      for (size_t i = first; i < order_.size(); ++i) bits |= uint64_t{1} << order_[i];
      if (!(s.deps & bits)) continue;
      if (!s.affine() || s.step[order_.back()] != 1) return false;
      for (size_t i = first; i + 1 < order_.size(); ++i)
        if (s.step[order_[i]] != s.step[order_[i + 1]] * extent(order_[i + 1])) return false;
    }
    return true;
  }
  [[nodiscard]] bool contiguous_instead(size_t d, size_t c) const {
    return extent(d) > 1 && extent(c) > 1 && std::any_of(f_.streams.begin(), f_.streams.end(), [&](const Stream& s) {
             return (s.deps >> c & 1) && f_.contiguous(s, d) && !f_.contiguous(s, c) && s.count >= f_.largest / 2;
           });
  }
  void transposed(size_t d, size_t c) {
    Schedule p = BlockFacts::schedule(ScheduleKind::BlockFlat, 1, 1, 1);
    p.placement.column_axes = bit(c);
    p.placement.row_axes = bit(d);
    const bool whole = f_.multiple(f_.extent(c), f_.vector).known && f_.multiple(f_.extent(d), f_.vector).known;
    if (whole) p.access.load_hint = f_.reads(false);
    squares(p);
    // Operands along d through shared memory as they lie in memory; what is stored is not staged, so its axis has the
    // columns.
    auto stored_along = [&](size_t axis) {
      return std::any_of(f_.streams.begin(), f_.streams.end(),
                         [&](const Stream& s) { return s.store && f_.contiguous(s, axis); });
    };
    if (stored_along(d)) std::swap(c, d);
    if (stored_along(d)) return;
    bool any = false;
    for (const Stream& s : f_.streams) {
      if (s.count < f_.largest / 2 || !f_.contiguous(s, d)) continue;
      any = true;
      if (!staged_pitch(f_.d, *s.access, d, c)) return;
    }
    if (!any) return;
    p.placement.column_axes = bit(c);
    p.placement.row_axes = bit(d);
    p.access.staged = p.traversal.unmasked_branch = true;
    const bool shifts = shifted_start(f_.graph, f_.nest, f_.d, c, f_.vector, f_.vector).has_value();
    p.access.alignment_peel = shifts ? static_cast<int>(f_.vector) : 1;
    p.access.load_hint = tile::Caching::Normal;
    for (bool downward : {false, true}) {
      p.placement.rows_fastest = downward;
      squares(p);
    }
  }
  void squares(Schedule p) {
    const int64_t high = power_above(count(p.placement.row_axes)),
                  wide = power_above(count(p.placement.column_axes) + p.access.alignment_peel - 1);
    for (int64_t threads : {64, 128, 256, 512})
      for (int64_t r = 8; r <= 256; r *= 2)
        for (int64_t w = 8; w <= 512; w *= 2) {
          const int64_t each = r * w / threads;
          if (each < 4 || each > kMaxEach || r > high || w > wide) continue;
          p.tile.rows = static_cast<int>(r);
          p.tile.columns = static_cast<int>(w);
          p.tile.warps = static_cast<int>(threads / 32);
          offer(p);
        }
  }

  // ---- rows
  // Elements of an access that never crosses the end of a row, nor begins elsewhere than at a multiple of itself.
  [[nodiscard]] int64_t row_access() const {
    int64_t k = kAccessBytes / f_.average_bytes;
    const auto row = axis_groups(f_.row_placement(), s_.extents.size(), f_.contiguous_axis, f_.d.row_mask).columns;
    for (size_t n = 0; n < s_.streams.size(); ++n) {
      const SizedStream& s = s_.streams[n];
      if (s.count < f_.largest / 2 || !s.affine() || s.step[row.back()] != 1) continue;
      int64_t run = extent(row.back());
      size_t i = row.size() - 1;
      for (; i > 0 && s.step[row[i - 1]] == run; --i) run *= extent(row[i - 1]);
      int64_t g = i > 0 ? run : 0;
      for (size_t a = 0; a < s.step.size(); ++a)
        if ((s.deps >> a & 1) && (std::find(row.begin() + static_cast<int64_t>(i), row.end(), a) == row.end()) &&
            extent(a) > 1)
          g = std::gcd(g, s.step[a]);
      g = std::gcd(g, s.start);
      while (k > 1 && g % k != 0) k /= 2;
    }
    return k;
  }
  void rows() {
    Schedule p = BlockFacts::schedule(ScheduleKind::BlockRows, 1, 1, 1);
    p.placement = f_.row_placement();
    const int64_t row = count(p.placement.column_axes), many = count(p.placement.row_axes);
    const int64_t access = row_access(), full = kAccessBytes / f_.average_bytes;
    const bool aligned = access == full;
    p.access.load_hint = hint(aligned, false);
    rows_in_tile(p, row, many, aligned);
    rows_in_loop(p, row, access, aligned);
    // Rows that are aligned here, but not at every size that the kernel may be launched for.
    if (access > 1 && !f_.row_multiple(access).known) {
      p.access.load_hint = hint(false, false);
      rows_in_tile(p, row, many, false);
      rows_in_loop(p, row, 1, false);
    }
  }
  // The cache hint of loads.
  [[nodiscard]] tile::Caching hint(bool aligned, bool again) const {
    return aligned || f_.one_pass() ? f_.reads(again) : tile::Caching::Normal;
  }
  void rows_in_tile(Schedule p, int64_t row, int64_t many, bool aligned) {
    const bool one = f_.constant(f_.d.row_count()) == 1;
    const int64_t whole = one ? 1 : std::max<int64_t>(2, power_above(row)), vector = kAccessBytes / f_.average_bytes;
    if (whole > kMaxTile) return;
    const int shift = aligned ? 1 : row_shift(f_, false);
    for (int64_t threads : kThreads)
      for (int64_t r = 1; r <= std::min<int64_t>(128, power_above(many)); r *= 2)
        for (int misaligned : {1, shift}) {
          if (misaligned > 1 ? r > 1 || misaligned == 1 : false) continue;
          p.access.alignment_peel = misaligned;
          p.tile.columns = static_cast<int>(misaligned > 1 ? power_above(row + misaligned - 1) : whole);
          const int64_t each = r * p.tile.columns / threads;
          if ((each < 1 && threads > 32) || each > kMaxEach || p.tile.columns > kMaxTile) continue;
          p.tile.rows = static_cast<int>(r);
          p.tile.warps = static_cast<int>(threads / 32);
          p.traversal.rows_in_flight = 1;
          offer_resident(p);
          p.access.min_blocks = 0;
          for (int turns : {2, 4}) {
            p.traversal.rows_in_flight = turns;
            const int64_t copied = turns * r * p.tile.columns * f_.loaded_bytes();
            if (aligned && misaligned == 1 && each <= 4 * vector && many >= turns * r && p.placement.row_axes != 0 &&
                copied <= f_.shared_room(1))
              offer(p);
          }
          if (shift == 1) break;
        }
  }
  void rows_in_loop(Schedule p, int64_t row, int64_t access, bool aligned) {
    p.kind = ScheduleKind::BlockLoop;
    p.traversal.loop = true;
    p.tile.rows = p.traversal.rows_in_flight = 1;
    const int64_t vector = kAccessBytes / f_.average_bytes;
    const int shift = aligned ? 1 : row_shift(f_, true);
    const bool one_axis = one(p.placement.column_axes);
    for (int64_t threads : kThreads)
      for (int64_t each = std::min(vector, access); each <= std::min(8 * vector, kMaxEach); each *= 2) {
        const int64_t tile = threads * each;
        if (tile < 64 || tile >= 2 * (known_row() ? row : std::max(row, kSomeRow))) continue;
        p.tile.columns = static_cast<int>(tile);
        p.tile.warps = static_cast<int>(threads / 32);
        p.access.alignment_peel = static_cast<int>(std::min<int64_t>(shift, tile));
        p.tile.contiguous =
            static_cast<int>(p.access.alignment_peel > 1 ? std::min(each, vector) : std::min(each, access));
        p.traversal.fold_steps = static_cast<int>(std::max<int64_t>(1, each / p.tile.contiguous));
        p.residency.cached_tiles = 0;
        p.residency.async_copy = false;
        for (bool folded : {true, false}) {
          if (folded ? !online_ : online_ && !sums_online_) continue;
          fold_online_ = folded;
          const SizedFacts::Rounds& rounds = s_.rounds[folded ? 1 : 0];
          p.access.load_hint = hint(aligned, rounds.rounds > 1);
          p.access.streaming_stores = rounds.rounds > 1;
          for (bool ahead : {false, true}) {
            p.traversal.num_stages = ahead ? 2 : 1;
            if (!ahead || one_axis) offer_resident(p);
          }
          p.traversal.num_stages = 1;
          if (rounds.rounds > 1 && one_axis) offer_forward(p);
          if (rounds.rounds > 1 && rounds.kept_bytes > 0) resident_rows(p, row, tile, rounds.kept_bytes);
        }
        fold_online_ = online_;
      }
  }
  // Tiles of a block's row that stay in shared memory between loops.
  void resident_rows(Schedule p, int64_t row, int64_t tile, int64_t bytes) {
    const int64_t threads = int64_t{32} * p.tile.warps, tiles = (row + p.access.alignment_peel - 1 + tile - 1) / tile;
    p.access.streaming_stores = false;
    p.access.load_hint = f_.reads(true);
    const bool copies = p.tile.contiguous > 1 && f_.stores_rows() && !f_.divides() && one(p.placement.column_axes) &&
                        f_.keeps_stream(fold_online_) && tiles == (row + tile - 1) / tile && tiles >= 2;
    const int64_t exchange = exchange_bytes(f_, tile, static_cast<size_t>(f_.contiguous_axis));
    for (int64_t on : {512, 768, 1024, 1536, 2048}) { // threads of a multiprocessor
      const int64_t blocks = on / threads;
      if (blocks < 1 || on % threads != 0) continue;
      const int64_t room = f_.tiles_in_shared(tile, bytes, blocks, exchange);
      p.access.min_blocks = static_cast<int>(blocks);
      p.residency.async_copy = false;
      p.residency.cached_tiles = static_cast<int>(std::min(tiles - 1, room));
      fit_shared(p, bytes);
      for (bool ahead : {false, true}) {
        p.traversal.num_stages = ahead ? 2 : 1;
        if (p.residency.cached_tiles >= 1 && (!ahead || one(p.placement.column_axes))) offer(p);
      }
      if (!copies) continue;
      const bool ends = p.access.alignment_peel == 1 && row % tile == 0;
      if (tiles > room + (ends ? 0 : 1)) continue;
      p.residency.cached_tiles = static_cast<int>(ends ? std::min(tiles, room) : tiles - 1);
      p.residency.async_copy = true;
      p.traversal.num_stages = 1;
      offer(p);
    }
  }
  // Rows shared by blocks: a tile each, as many blocks as hold the row, or as many as run at a time.
  void cooperative_rows() {
    const Placement placement = f_.row_placement();
    const Sharing sharing(f_, online_);
    const int64_t row = count(placement.column_axes), many = count(placement.row_axes),
                  vector = kAccessBytes / f_.average_bytes;
    if (row < 2 * 128 * vector) return;
    const bool aligned = (many == 1 && one(placement.column_axes)) || row_access() == vector;
    const int shift = aligned ? 1 : row_shift(f_, true);
    for (int64_t threads : {128, 256, 512, 1024})
      for (int64_t each = vector; each <= std::min<int64_t>(8 * vector, 32); each *= 2)
        for (int64_t on : {512, 1024, 2048}) { // threads of a multiprocessor
          const int64_t resident = on / threads, all = resident * f_.device.multiprocessors;
          if (resident < 1 || threads * each > row) continue;
          auto add = [&](int64_t programs, bool loop, int64_t part) {
            Schedule p =
                sharing.cooperative_rows({threads, each, resident, programs, shift, loop, aligned || shift > 1});
            if (part > 1) {
              if (p.residency.cached_tiles / part < 1) return;
              p.residency.cached_tiles /= static_cast<int>(part);
            }
            fold_online_ = online_;
            const Cooperative c = sharing.cooperative(p);
            auto blocks = c.blocks_per_row.eval(sizes_);
            const int64_t most = c.grid_barrier ? std::min(all, threads * 32) : kMaxMembers;
            if (!blocks.ok() || *blocks < 2 || *blocks > most) return;
            if (!c.grid_barrier && loop && programs == 0) return; // a tile each
            if (c.grid_barrier && (loop && programs > 0 ? many * *blocks > all : 2 * *blocks > all)) return;
            if (!f_.constant(c.blocks_per_row))
              p.cooperation.max_blocks_per_row = programs > 0 ? programs : 2 * *blocks;
            for (bool ahead : {true, false}) {
              if (ahead && !(c.grid_barrier && loop && one(placement.column_axes))) continue;
              p.traversal.num_stages = ahead ? 2 : 1;
              offer(p, *blocks);
            }
            p.residency.async_copy = c.grid_barrier && p.residency.cached_tiles > 0 && p.access.alignment_peel == 1 &&
                                     one(placement.column_axes) && f_.keeps_stream(online_);
            if (p.residency.async_copy) offer(p, *blocks);
          };
          add(0, false, 1);
          for (int64_t part : {1, 2, 4}) add(0, true, part); // of those that wait
          add(all, true, 1);
        }
  }

  // ---- columns of rows
  // The outer axes side by side in the tile, or the contiguous one alone, the others points.
  [[nodiscard]] std::vector<Placement> column_placements() const {
    const uint64_t c = bit(static_cast<size_t>(f_.contiguous_axis)), all = bit(s_.extents.size()) - 1;
    const uint64_t outer = all & ~f_.d.row_mask & ~c;
    std::vector<Placement> list(outer != 0 ? 2 : 1);
    for (Placement& p : list) p.row_axes = f_.d.row_mask, p.column_axes = c;
    list.back().column_axes |= list.size() > 1 ? outer : 0;
    return list;
  }
  // Rows of a length that is not known are walked whatever it is at these sizes: one schedule takes all of them.
  [[nodiscard]] bool known_row() const { return f_.constant(f_.d.row_count()).has_value(); }
  void columns() {
    for (const Placement& placement : column_placements()) {
      Schedule p = BlockFacts::schedule(ScheduleKind::BlockColumns, 1, 1, 1);
      p.placement = placement;
      const int64_t length = count(placement.row_axes), width = count(placement.column_axes);
      const SizedFacts::Rounds& rounds = s_.rounds[online_ ? 1 : 0];
      fold_online_ = online_;
      for (int64_t threads : kThreads)
        for (int64_t columns = std::min<int64_t>(8, power_above(width));
             columns <= std::min<int64_t>(8192, power_above(width)); columns *= 2)
          for (int64_t each = std::max<int64_t>(1, f_.vector / 2); each <= std::min(8 * f_.vector, kMaxEach);
               each *= 2) {
            p.residency.cached_tiles = p.access.min_blocks = 0;
            p.tile.columns = static_cast<int>(columns);
            p.tile.rows = static_cast<int>(threads * each / columns);
            if (p.tile.rows < 1 || threads > int64_t{p.tile.columns} * std::max(2, p.tile.rows)) continue;
            p.tile.warps = static_cast<int>(threads / 32);
            const int walked = p.tile.rows;
            if (walked >= length) {
              p.traversal.loop = false;
              p.traversal.fold_steps = 1;
              p.tile.rows =
                  static_cast<int>(f_.constant(f_.d.row_count()) == 1 ? 1 : std::max<int64_t>(2, power_above(length)));
              p.access.load_hint = single_access() ? f_.reads(false) : tile::Caching::Normal;
              offer(p);
            }
            if (walked < 2 || walked >= (known_row() ? length : std::max(length, kSomeRow))) continue;
            p.traversal.loop = true;
            p.tile.rows = walked;
            p.traversal.fold_steps =
                static_cast<int>(std::clamp<int64_t>(each / f_.vector, 1, std::max(1, p.tile.rows / 2)));
            p.access.load_hint = rounds.rounds == 1 && single_access() ? f_.reads(false) : tile::Caching::Normal;
            offer(p);
            if (rounds.rounds > 1 && one(p.placement.row_axes)) offer_forward(p);
            if (rounds.rounds > 1 && rounds.kept_bytes > 0) resident_columns(p, length, rounds.kept_bytes);
          }
    }
  }
  void resident_columns(Schedule p, int64_t length, int64_t bytes) {
    const int64_t threads = int64_t{32} * p.tile.warps, elements = int64_t{p.tile.rows} * p.tile.columns;
    const int64_t tiles = (length + p.tile.rows - 1) / p.tile.rows;
    for (int64_t blocks : {1, 2, 4}) {
      if (blocks * threads > 2048) continue;
      const int64_t room =
          f_.shared_room(blocks, exchange_bytes(f_, elements, static_cast<size_t>(f_.contiguous_axis)));
      p.residency.cached_tiles = static_cast<int>(std::min(tiles - 1, std::max<int64_t>(0, room) / (elements * bytes)));
      p.access.min_blocks = static_cast<int>(blocks);
      leave_exchange(p, bytes);
      fit_shared(p, bytes);
      if (p.residency.cached_tiles >= 1) offer(p);
    }
  }
  // With much that is resident, threads exchange little: values that change threads, and what several have folded of
  // a column, two numbers where sums are folded online.
  void leave_exchange(Schedule& p, int64_t bytes) const {
    const int64_t elements = int64_t{p.tile.rows} * p.tile.columns;
    const int64_t exchanged = std::max(exchange_bytes(f_, elements, static_cast<size_t>(f_.contiguous_axis)) / 2,
                                       elements / p.traversal.fold_steps * 8);
    if (exchanged > kExchangeBytes)
      p.residency.cached_tiles = static_cast<int>(std::clamp<int64_t>(
          (BlockFacts::kMaxExchangeBytes - exchanged) / (elements * bytes), 0, p.residency.cached_tiles));
  }
  // No more resident tiles than a block has room for.
  void fit_shared(Schedule& p, int64_t bytes) const {
    if (p.residency.cached_tiles == 0 || bytes <= 0) return;
    p.traversal.online = fold_online_;
    const int64_t room = f_.device.shared_bytes - shared_needs(f_, p).exchange;
    const int64_t tile = int64_t{p.tile.rows} * p.tile.columns * bytes;
    p.residency.cached_tiles = static_cast<int>(std::clamp<int64_t>(room / tile, 0, p.residency.cached_tiles));
  }
  void column_groups() {
    const Sharing sharing(f_, online_);
    for (const Placement& placement : column_placements()) {
      const int64_t width = count(placement.column_axes);
      for (int64_t threads : {128, 256, 512})
        for (int64_t columns = std::min<int64_t>(16, power_above(width));
             columns <= std::min<int64_t>(512, power_above(width)); columns *= 2)
          for (int64_t each = std::max<int64_t>(4, f_.vector); each <= std::min(4 * f_.vector, kMaxEach); each *= 2)
            for (int64_t on : {512, 1024, 2048}) { // threads of a multiprocessor
              const int64_t resident = on / threads;
              if (resident < 1 || columns < 2) continue;
              Schedule p = sharing.cooperative_columns(
                  placement, {threads, each, columns, resident, sharing.max_partials(threads)});
              fold_online_ = online_;
              if (p.residency.cached_tiles > 0) {
                leave_exchange(p, s_.rounds[online_ ? 1 : 0].kept_bytes);
                fit_shared(p, s_.rounds[online_ ? 1 : 0].kept_bytes);
              }
              const Cooperative c = sharing.cooperative(p);
              auto blocks = c.blocks_per_row.eval(sizes_);
              if (!blocks.ok() || *blocks < 2) continue;
              p.access.load_hint = !c.grid_barrier && single_access() ? f_.reads(false) : tile::Caching::Normal;
              offer(p, *blocks);
            }
    }
  }

  // ---- windows that slide (window_facts.h)
  void windows(const WindowFacts& w) {
    const auto c = static_cast<size_t>(f_.contiguous_axis);
    for (int64_t v = f_.vector; v >= 1; v /= 2) {
      if (extent(c) % v != 0) continue;
      Schedule p = BlockFacts::schedule(ScheduleKind::BlockWindow, 1, v, 1);
      p.placement.window_axis = w.axis;
      // Vectors of the contiguous axis are neighbours; the next axis varies fastest.
      p.placement.split_axis = v > 1 ? f_.contiguous_axis : -1;
      for (size_t i = 0; i < s_.extents.size(); ++i)
        if (!f_.is_row(i)) p.placement.row_axes |= bit(i + (v > 1 && i > c ? 1 : 0));
      if (v > 1) p.placement.column_axes = bit(c + 1);
      for (int64_t t = 1; t <= std::min(WindowFacts::kMaxOutputs, extent(static_cast<size_t>(w.axis)));
           t += t < 8 ? 1 : 3)
        for (int64_t u = 1; u <= WindowFacts::kMaxOuterOutputs; ++u) {
          if (t * u * v > kMaxEach ||
              (u > 1 && (w.outer < 0 || !f_.multiple(f_.extent(static_cast<size_t>(w.outer)), u).known)))
            continue;
          const auto thread = w.thread(t, u, v);
          if (!thread || thread->registers > static_cast<double>(f_.device.thread_registers)) continue;
          p.tile.outputs = static_cast<int>(t);
          p.placement.outer_window_axis = u > 1 ? w.outer : -1;
          p.tile.outer_outputs = static_cast<int>(u);
          p.tile.taps = static_cast<int>(thread->taps);
          for (int64_t threads : {64, 128, 256}) {
            p.tile.rows = static_cast<int>(threads);
            p.tile.warps = static_cast<int>(threads / 32);
            offer(p);
          }
        }
    }
  }

  const BlockFacts& f_;
  const SizedFacts& s_;
  const CallSizes& sizes_;
  const bool online_;
  const VisitSchedule& visit_;
  bool sums_online_ = false;  // there are sums that a loop can fold without what they depend on
  bool fold_online_ = true;   // of the schedule that is offered
  std::vector<size_t> order_; // all axes, the contiguous one last
};

} // namespace

void for_each_schedule(const BlockFacts& facts, const SizedFacts& sized, const CallSizes& sizes, bool online,
                       const VisitSchedule& visit) {
  if (!facts.device.is_gpu()) return for_each_host_schedule(facts, sized, visit);
  Space(facts, sized, sizes, online, visit).run();
}

} // namespace tessera
