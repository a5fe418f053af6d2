#include "codegen/schedule/space.h"
#include "codegen/schedule/block_config.h"
#include "codegen/schedule/online.h"
#include <algorithm>
#include <array>
#include <numeric>
#include <set>

namespace tessera {
namespace {

constexpr int64_t kThreads[] = {32, 64, 128, 256, 512, 1024};
constexpr int64_t kRegisterBounds[] = {32, 40, 48, 64, 80, 96, 128};
constexpr int64_t kMostEach = 64;       // elements of a thread's tile
constexpr int64_t kMostTile = 64 << 10; // elements of a tile that holds a row
constexpr int64_t kSomeRow = 512;       // elements of a row whose length is not known
// Shared memory of a block for exchanges beside resident tiles, and with them (codegen/llvm/gpu_hazards.h).
constexpr int64_t kExchangeBytes = 16 << 10, kSharedBytes = 96 << 10;
constexpr int64_t kMostMembers = 8192; // blocks that share a row

class Space {
public:
  Space(const BlockFacts& facts, const SizedFacts& sized, const CallSizes& sizes, bool online,
        const VisitSchedule& visit)
      : f_(facts), s_(sized), sizes_(sizes), online_(online), visit_(visit) {}

  void run() {
    if (s_.extents.empty()) return offer(BlockFacts::plan(ScheduleKind::BlockFlat, 1, 1, 1));
    if (!f_.d.reduces) return flat();
    const bool along = f_.is_row(static_cast<size_t>(f_.contiguous_axis));
    Domain d = f_.d;
    for (const OnlineSum& sum : find_online(f_.nest, d)) sums_online_ |= sum.kind != OnlineSum::Kind::None;
    if (s_.window) windows(*s_.window);
    if (along) {
      rows();
      row_teams();
    } else {
      columns();
      column_teams();
    }
  }

private:
  [[nodiscard]] int64_t extent(size_t axis) const { return s_.extents[axis]; }
  [[nodiscard]] int64_t count(const std::vector<size_t>& axes) const {
    int64_t n = 1;
    for (size_t a : axes) n *= extent(a);
    return n;
  }
  void offer(const BlockPlan& plan, int64_t members = 1) {
    BlockPlan p = plan;
    if (p.loop || p.team) p.schedule.config["online"] = fold_online_ ? 1 : 0;
    visit_(p, members);
  }
  // As it is, and with bounds on registers that let more blocks be resident.
  void offer_resident(BlockPlan p) {
    p.min_blocks = 0;
    offer(p);
    int before = 0;
    for (int64_t registers : kRegisterBounds) {
      p.min_blocks = static_cast<int>(f_.device.registers / (32 * p.warps * registers));
      if (p.min_blocks >= 2 && p.min_blocks <= f_.device.resident_blocks &&
          32 * p.min_blocks * p.warps <= f_.device.resident_threads && p.min_blocks != before)
        offer(p);
      before = p.min_blocks;
    }
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
  void tiles(BlockPlan p, const std::vector<int64_t>& widths) {
    for (int64_t threads : kThreads)
      for (int64_t each = std::max<int64_t>(1, f_.vector / 2); each <= std::min(8 * f_.vector, kMostEach); each *= 2)
        for (int64_t w : widths) {
          const int64_t elements = threads * each;
          if (w > elements || (w < elements && p.groups.rows.empty())) continue;
          p.warps = static_cast<int>(threads / 32);
          p.columns = static_cast<int>(w);
          p.rows = static_cast<int>(elements / w);
          offer(p);
        }
  }
  void one_run() {
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, 1, 1, 1);
    p.groups.columns = order_;
    p.whole_branch = f_.d.env.divisor(f_.points(AxisRole::Outer)) % f_.vector != 0;
    if (single_access()) p.reads = f_.reads(false);
    std::vector<int64_t> widths;
    for (int64_t w = 32; w <= 1024 * kMostEach; w *= 2) widths.push_back(w);
    tiles(p, widths);
    if (order_.size() < 2 || f_.vector < 2 || f_.d.env.range(f_.extent(order_.back())).lo < f_.vector) return;
    p.run = static_cast<int>(f_.vector);
    tiles(p, widths);
  }
  // Whether the contiguous axis is known to be whole accesses.
  [[nodiscard]] bool single_access() const {
    return f_.multiple(f_.extent(static_cast<size_t>(f_.contiguous_axis)), f_.vector).known;
  }
  void vectors(size_t c) {
    for (int64_t v = f_.vector; v > 1; v /= 2) {
      if (extent(c) % v != 0) continue;
      BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, 1, v, 1);
      p.split = static_cast<int>(c);
      for (size_t i : order_) p.groups.rows.push_back(i > c ? i + 1 : i);
      p.groups.columns = {c + 1};
      if (v == f_.vector) p.reads = f_.reads(false);
      tiles(p, {v});
    }
  }
  void rows_of_run(size_t c) {
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, 1, 1, 1);
    p.groups.rows.assign(order_.begin(), order_.end() - 1);
    p.groups.columns = {c};
    if (single_access()) p.reads = f_.reads(false);
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
      BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, 1, 1, 1);
      p.groups.columns.assign(order_.begin() + static_cast<int64_t>(first), order_.end());
      for (size_t i = 0; i < first; ++i)
        (along >> order_[i] & 1 ? p.groups.rows : p.groups.points).push_back(order_[i]);
      if (p.groups.rows.empty() || (p.groups.points.empty() && p.groups.columns.size() == 1)) continue;
      if (single_access()) p.reads = f_.reads(false);
      const int64_t width = count(p.groups.columns), height = count(p.groups.rows);
      for (int64_t threads : kThreads)
        for (int64_t w = std::min<int64_t>(32, power_above(width)); w <= std::min<int64_t>(4096, power_above(width));
             w *= 2)
          for (int64_t r = 1; r <= std::min<int64_t>(64, power_above(height)); r *= 2) {
            const int64_t each = r * w / threads;
            if (each < std::max<int64_t>(1, f_.vector / 2) || each > std::min(8 * f_.vector, kMostEach)) continue;
            p.rows = static_cast<int>(r);
            p.columns = static_cast<int>(w);
            p.warps = static_cast<int>(threads / 32);
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
      if (!s.affine || s.step[order_.back()] != 1) return false;
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
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, 1, 1, 1);
    p.groups.columns = {c};
    p.groups.rows = {d};
    for (size_t i = 0; i < s_.extents.size(); ++i)
      if (i != c && i != d) p.groups.points.push_back(i);
    const bool whole = f_.multiple(f_.extent(c), f_.vector).known && f_.multiple(f_.extent(d), f_.vector).known;
    if (whole) p.reads = f_.reads(false);
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
    p.groups.columns = {c};
    p.groups.rows = {d};
    p.staged = p.whole_branch = true;
    const bool shifts = shifted_start(f_.graph, f_.nest, f_.d, c, f_.vector, f_.vector).has_value();
    p.shift = shifts ? static_cast<int>(f_.vector) : 1;
    p.reads = tile::Caching::Normal;
    for (bool downward : {false, true}) {
      p.downward = downward;
      squares(p);
    }
  }
  void squares(BlockPlan p) {
    const int64_t high = power_above(count(p.groups.rows)), wide = power_above(count(p.groups.columns) + p.shift - 1);
    for (int64_t threads : {64, 128, 256, 512})
      for (int64_t r = 8; r <= 256; r *= 2)
        for (int64_t w = 8; w <= 512; w *= 2) {
          const int64_t each = r * w / threads;
          if (each < 4 || each > kMostEach || r > high || w > wide) continue;
          p.rows = static_cast<int>(r);
          p.columns = static_cast<int>(w);
          p.warps = static_cast<int>(threads / 32);
          offer(p);
        }
  }

  // ---- rows
  // Elements of an access that never crosses the end of a row, nor begins elsewhere than at a multiple of itself.
  [[nodiscard]] int64_t row_access() const {
    int64_t k = kAccessBytes / f_.usual;
    const auto row = f_.row_groups().columns;
    for (size_t n = 0; n < s_.streams.size(); ++n) {
      const SizedStream& s = s_.streams[n];
      if (s.count < f_.largest / 2 || !s.affine || s.step[row.back()] != 1) continue;
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
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockRows, 1, 1, 1);
    p.groups = f_.row_groups();
    const int64_t row = count(p.groups.columns), many = count(p.groups.rows);
    const int64_t access = row_access(), full = kAccessBytes / f_.usual;
    const bool aligned = access == full;
    p.reads = hint(aligned, false);
    rows_in_tile(p, row, many, aligned);
    rows_in_loop(p, row, access, aligned);
    // Rows that are aligned here, but not at every size that the kernel may be launched for.
    if (access > 1 && !f_.row_multiple(access).known) {
      p.reads = hint(false, false);
      rows_in_tile(p, row, many, false);
      rows_in_loop(p, row, 1, false);
    }
  }
  // What caches are told of loads.
  [[nodiscard]] tile::Caching hint(bool aligned, bool again) const {
    return aligned || f_.one_pass() ? f_.reads(again) : tile::Caching::Normal;
  }
  void rows_in_tile(BlockPlan p, int64_t row, int64_t many, bool aligned) {
    const bool one = f_.constant(f_.d.row_count()) == 1;
    const int64_t whole = one ? 1 : std::max<int64_t>(2, power_above(row)), vector = kAccessBytes / f_.usual;
    if (whole > kMostTile) return;
    const int shift = aligned ? 1 : row_shift(f_, false);
    for (int64_t threads : kThreads)
      for (int64_t r = 1; r <= std::min<int64_t>(128, power_above(many)); r *= 2)
        for (int misaligned : {1, shift}) {
          if (misaligned > 1 ? r > 1 || misaligned == 1 : false) continue;
          p.shift = misaligned;
          p.columns = static_cast<int>(misaligned > 1 ? power_above(row + misaligned - 1) : whole);
          const int64_t each = r * p.columns / threads;
          if ((each < 1 && threads > 32) || each > kMostEach || p.columns > kMostTile) continue;
          p.rows = static_cast<int>(r);
          p.warps = static_cast<int>(threads / 32);
          p.turns = 1;
          offer_resident(p);
          p.min_blocks = 0;
          for (int turns : {2, 4}) {
            p.turns = turns;
            const int64_t copied = turns * r * p.columns * f_.loaded_bytes();
            if (aligned && misaligned == 1 && each <= 4 * vector && many >= turns * r && !p.groups.rows.empty() &&
                copied <= f_.shared_room(1))
              offer(p);
          }
          if (shift == 1) break;
        }
  }
  void rows_in_loop(BlockPlan p, int64_t row, int64_t access, bool aligned) {
    p.schedule.kind = ScheduleKind::BlockLoop;
    p.loop = true;
    p.rows = p.turns = 1;
    const int64_t vector = kAccessBytes / f_.usual;
    const int shift = aligned ? 1 : row_shift(f_, true);
    const bool one_axis = p.groups.columns.size() == 1;
    for (int64_t threads : kThreads)
      for (int64_t each = std::min(vector, access); each <= std::min(8 * vector, kMostEach); each *= 2) {
        const int64_t tile = threads * each;
        if (tile < 64 || tile >= 2 * (known_row() ? row : std::max(row, kSomeRow))) continue;
        p.columns = static_cast<int>(tile);
        p.warps = static_cast<int>(threads / 32);
        p.shift = static_cast<int>(std::min<int64_t>(shift, tile));
        p.run = static_cast<int>(p.shift > 1 ? std::min(each, vector) : std::min(each, access));
        p.steps = static_cast<int>(std::max<int64_t>(1, each / p.run));
        p.keep = 0;
        p.copied = false;
        for (bool folded : {true, false}) {
          if (folded ? !online_ : online_ && !sums_online_) continue;
          fold_online_ = folded;
          const SizedFacts::Rounds& rounds = s_.rounds[folded ? 1 : 0];
          p.reads = hint(aligned, rounds.rounds > 1);
          p.streaming = rounds.rounds > 1;
          for (bool ahead : {false, true}) {
            p.ahead = ahead;
            if (!ahead || one_axis) offer_resident(p);
          }
          if (rounds.rounds > 1 && rounds.kept_bytes > 0) resident_rows(p, row, tile, rounds.kept_bytes);
        }
        fold_online_ = online_;
      }
  }
  // Tiles of a block's row that stay in shared memory between loops.
  void resident_rows(BlockPlan p, int64_t row, int64_t tile, int64_t bytes) {
    const int64_t threads = int64_t{32} * p.warps, tiles = (row + p.shift - 1 + tile - 1) / tile;
    p.streaming = false;
    p.reads = f_.reads(true);
    const bool copies = p.run > 1 && f_.stores_rows() && !f_.divides() && p.groups.columns.size() == 1 &&
                        f_.keeps_stream(fold_online_) && tiles == (row + tile - 1) / tile && tiles >= 2;
    std::set<std::pair<int, bool>> met;
    for (int64_t on : {512, 768, 1024, 1536, 2048}) { // threads of a multiprocessor
      const int64_t blocks = on / threads;
      if (blocks < 1 || on % threads != 0) continue;
      const int64_t room = f_.tiles_in_shared(tile, bytes, blocks);
      p.min_blocks = static_cast<int>(blocks);
      p.copied = false;
      p.keep = static_cast<int>(std::min(tiles - 1, room));
      for (bool ahead : {false, true}) {
        p.ahead = ahead;
        if (p.keep >= 1 && (!ahead || p.groups.columns.size() == 1)) offer(p);
      }
      if (!copies) continue;
      const bool ends = p.shift == 1 && row % tile == 0;
      if (tiles > room + (ends ? 0 : 1)) continue;
      p.keep = static_cast<int>(ends ? std::min(tiles, room) : tiles - 1);
      p.copied = true;
      p.ahead = false;
      offer(p);
    }
  }
  // Rows shared by blocks: a tile each, as many blocks as hold the row, or as many as run at a time.
  void row_teams() {
    const AxisGroups groups = f_.row_groups();
    const int64_t row = count(groups.columns), many = count(groups.rows), vector = kAccessBytes / f_.usual;
    if (row < 2 * 128 * vector) return;
    const bool aligned = (many == 1 && groups.columns.size() == 1) || row_access() == vector;
    const int shift = aligned ? 1 : row_shift(f_, true);
    for (int64_t threads : {128, 256, 512, 1024})
      for (int64_t each = vector; each <= std::min<int64_t>(8 * vector, 32); each *= 2)
        for (int64_t on : {512, 1024, 2048}) { // threads of a multiprocessor
          const int64_t resident = on / threads, all = resident * f_.device.multiprocessors;
          if (resident < 1 || threads * each > row) continue;
          auto add = [&](int64_t programs, bool loop, int64_t part) {
            BlockPlan p =
                row_team(f_, {threads, each, resident, programs, 0, shift, loop, aligned || shift > 1}, online_);
            if (part > 1) {
              if (p.keep / part < 1) return;
              p.keep /= static_cast<int>(part);
              share_team(f_, p, online_);
            }
            auto members = p.team->eval(sizes_);
            const int64_t most = p.waits ? std::min(all, threads * 32) : kMostMembers;
            if (!members.ok() || *members < 2 || *members > most) return;
            if (!p.waits && loop && programs == 0) return; // a tile each
            if (p.waits && (loop && programs > 0 ? many * *members > all : 2 * *members > all)) return;
            if (!f_.constant(*p.team)) p.most_members = programs > 0 ? programs : 2 * *members;
            fold_online_ = online_;
            p.copied = false;
            for (bool ahead : {true, false}) {
              p.ahead = ahead && p.waits && p.loop && groups.columns.size() == 1;
              if (ahead == p.ahead) offer(p, *members);
            }
            p.copied = p.waits && p.keep > 0 && p.shift == 1 && groups.columns.size() == 1 && f_.keeps_stream(online_);
            if (p.copied) offer(p, *members);
          };
          add(0, false, 1);
          for (int64_t part : {1, 2, 4}) add(0, true, part); // of those that wait
          add(all, true, 1);
        }
  }

  // ---- columns of rows
  // The outer axes side by side in the tile, or the contiguous one alone, the others points.
  [[nodiscard]] std::vector<AxisGroups> column_groups() const {
    const auto c = static_cast<size_t>(f_.contiguous_axis);
    std::vector<AxisGroups> list;
    for (bool all : {false, true}) {
      AxisGroups g;
      for (size_t i = 0; i < s_.extents.size(); ++i) {
        if (f_.is_row(i))
          g.rows.push_back(i);
        else if (i != c)
          (all ? g.columns : g.points).push_back(i);
      }
      if (all && g.columns.empty()) continue;
      g.columns.push_back(c);
      list.push_back(std::move(g));
    }
    return list;
  }
  // Rows of a length that is not known are walked whatever it is at these sizes: one schedule takes all of them.
  [[nodiscard]] bool known_row() const { return f_.constant(f_.d.row_count()).has_value(); }
  void columns() {
    for (const AxisGroups& groups : column_groups()) {
      BlockPlan p = BlockFacts::plan(ScheduleKind::BlockColumns, 1, 1, 1);
      p.groups = groups;
      const int64_t length = count(groups.rows), width = count(groups.columns);
      const SizedFacts::Rounds& rounds = s_.rounds[online_ ? 1 : 0];
      fold_online_ = online_;
      for (int64_t threads : kThreads)
        for (int64_t columns = std::min<int64_t>(8, power_above(width));
             columns <= std::min<int64_t>(8192, power_above(width)); columns *= 2)
          for (int64_t each = std::max<int64_t>(1, f_.vector / 2); each <= std::min(8 * f_.vector, kMostEach);
               each *= 2) {
            p.keep = p.min_blocks = 0;
            p.columns = static_cast<int>(columns);
            p.rows = static_cast<int>(threads * each / columns);
            if (p.rows < 1 || threads > int64_t{p.columns} * std::max(2, p.rows)) continue;
            p.warps = static_cast<int>(threads / 32);
            const int walked = p.rows;
            if (walked >= length) {
              p.loop = false;
              p.steps = 1;
              p.rows =
                  static_cast<int>(f_.constant(f_.d.row_count()) == 1 ? 1 : std::max<int64_t>(2, power_above(length)));
              p.reads = single_access() ? f_.reads(false) : tile::Caching::Normal;
              offer(p);
            }
            if (walked < 2 || walked >= (known_row() ? length : std::max(length, kSomeRow))) continue;
            p.loop = true;
            p.rows = walked;
            p.steps = static_cast<int>(std::clamp<int64_t>(each / f_.vector, 1, std::max(1, p.rows / 2)));
            p.reads = rounds.rounds == 1 && single_access() ? f_.reads(false) : tile::Caching::Normal;
            offer(p);
            if (rounds.rounds > 1 && rounds.kept_bytes > 0) resident_columns(p, length, rounds.kept_bytes);
          }
    }
  }
  void resident_columns(BlockPlan p, int64_t length, int64_t bytes) {
    const int64_t threads = int64_t{32} * p.warps, elements = int64_t{p.rows} * p.columns;
    const int64_t tiles = (length + p.rows - 1) / p.rows;
    for (int64_t blocks : {1, 2, 4}) {
      if (blocks * threads > 2048) continue;
      const int64_t room =
          f_.shared_room(blocks, exchange_bytes(f_, elements, static_cast<size_t>(f_.contiguous_axis)));
      p.keep = static_cast<int>(std::min(tiles - 1, std::max<int64_t>(0, room) / (elements * bytes)));
      p.min_blocks = static_cast<int>(blocks);
      leave_exchange(p, bytes);
      if (p.keep >= 1) offer(p);
    }
  }
  // Beside much that is resident, threads exchange little: values that change threads, and what several have folded of a
  // column, two numbers where sums are folded online.
  void leave_exchange(BlockPlan& p, int64_t bytes) const {
    const int64_t elements = int64_t{p.rows} * p.columns;
    const int64_t exchanged =
        std::max(exchange_bytes(f_, elements, static_cast<size_t>(f_.contiguous_axis)) / 2, elements / p.steps * 8);
    if (exchanged > kExchangeBytes)
      p.keep = static_cast<int>(std::clamp<int64_t>((kSharedBytes - exchanged) / (elements * bytes), 0, p.keep));
  }
  void column_teams() {
    for (const AxisGroups& groups : column_groups()) {
      const int64_t width = count(groups.columns);
      for (int64_t threads : {128, 256, 512})
        for (int64_t columns = std::min<int64_t>(16, power_above(width));
             columns <= std::min<int64_t>(512, power_above(width)); columns *= 2)
          for (int64_t each = std::max<int64_t>(4, f_.vector); each <= std::min(4 * f_.vector, kMostEach); each *= 2)
            for (int64_t on : {512, 1024, 2048}) { // threads of a multiprocessor
              const int64_t resident = on / threads;
              if (resident < 1 || columns < 2) continue;
              BlockPlan p = column_team(
                  f_, groups, {threads, each, columns, resident, most_partials(f_, threads, online_)}, online_);
              if (p.keep > 0) leave_exchange(p, s_.rounds[online_ ? 1 : 0].kept_bytes);
              auto members = p.team->eval(sizes_);
              if (!members.ok() || *members < 2) continue;
              fold_online_ = online_;
              p.reads = !p.waits && single_access() ? f_.reads(false) : tile::Caching::Normal;
              offer(p, *members);
            }
    }
  }

  // ---- windows that slide (window_facts.h)
  void windows(const WindowFacts& w) {
    const auto c = static_cast<size_t>(f_.contiguous_axis);
    for (int64_t v = f_.vector; v >= 1; v /= 2) {
      if (extent(c) % v != 0) continue;
      BlockPlan p = BlockFacts::plan(ScheduleKind::BlockWindow, 1, v, 1);
      p.window = w.axis;
      // Vectors of the contiguous axis are neighbours; what lies beside them varies fastest.
      p.split = v > 1 ? f_.contiguous_axis : -1;
      for (size_t i = 0; i < s_.extents.size(); ++i)
        if (i != c) (f_.is_row(i) ? p.groups.points : p.groups.rows).push_back(i + (v > 1 && i > c ? 1 : 0));
      p.groups.rows.push_back(c);
      if (v > 1) p.groups.columns.push_back(c + 1);
      for (int64_t t = 1; t <= std::min(WindowFacts::kMostOutputs, extent(static_cast<size_t>(w.axis)));
           t += t < 8 ? 1 : 3)
        for (int64_t u = 1; u <= WindowFacts::kMostOuterOutputs; ++u) {
          if (t * u * v > kMostEach ||
              (u > 1 && (w.outer < 0 || !f_.multiple(f_.extent(static_cast<size_t>(w.outer)), u).known)))
            continue;
          const auto thread = w.thread(t, u, v);
          if (!thread || thread->registers > static_cast<double>(f_.device.thread_registers)) continue;
          p.outputs = static_cast<int>(t);
          p.outer_window = u > 1 ? w.outer : -1;
          p.outer_outputs = static_cast<int>(u);
          p.taps = static_cast<int>(thread->taps);
          for (int64_t threads : {64, 128, 256}) {
            p.rows = static_cast<int>(threads);
            p.warps = static_cast<int>(threads / 32);
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
  Space(facts, sized, sizes, online, visit).run();
}

} // namespace tessera
