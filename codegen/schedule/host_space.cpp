#include "codegen/schedule/host_space.h"
#include "codegen/schedule/fold.h"
#include "codegen/schedule/online.h"
#include <algorithm>
#include <bit>

namespace tessera {
namespace {

constexpr int64_t kProgramBytes[] = {64 << 10, 16 << 10, 256 << 10};
constexpr int kMaxVector = 64, kMaxUnroll = 16, kMaxParts = 64;

bool power(int64_t n, int64_t most) { return n >= 1 && n <= most && std::has_single_bit(static_cast<uint64_t>(n)); }
std::string text(int64_t n) { return std::to_string(n); }

class HostSpace {
public:
  HostSpace(const BlockFacts& facts, const SizedFacts& sized, const VisitSchedule& visit)
      : f_(facts), s_(sized), visit_(visit) {}

  void run() {
    Schedule s;
    if (s_.extents.empty()) return visit_(s, 1);
    // Rows that exceed a part of the cache evict the one before.
    find_forms();
    s.traversal.prefetch_bytes = std::max(f_.device.l1_bytes, f_.device.l2_bytes / 8);
    for (size_t i = s_.extents.size(); i-- > 0;) axis(s, i); // of equal ones the inner axis, which comes first
  }

private:
  void find_forms() {
    if (!f_.d.reduces) return;
    Domain own = f_.d;
    splits_columns_ = splits(f_.nest, own, ScheduleKind::ColumnLoop);
    splits_rows_[0] = splits(f_.nest, own, ScheduleKind::RowLoop);
    const OnlineSums sums = find_online(f_.nest, own);
    online_ = online_fits(f_.nest, f_.d) &&
              std::any_of(sums.begin(), sums.end(), [](const OnlineSum& o) { return o.kind != OnlineSum::Kind::None; });
    splits_rows_[1] = online_ && splits(f_.nest, own, ScheduleKind::RowLoop);
    sized_ = f_.constant(f_.d.row_count()) && f_.constant(f_.points(AxisRole::Outer));
  }
  void axis(Schedule s, size_t i) {
    s.placement.axis = static_cast<int>(i);
    s.kind = !f_.d.reduces ? ScheduleKind::Flat : f_.is_row(i) ? ScheduleKind::RowLoop : ScheduleKind::ColumnLoop;
    // Vectors of a register, narrower ones for what is shorter.
    s.tile.vector = std::clamp(f_.device.vector_bytes / s_.compute_bytes, 1, kMaxVector);
    if (s_.known[i])
      while (s.tile.vector > 1 && s.tile.vector / 2 >= s_.extents[i]) s.tile.vector /= 2;
    for (int unroll = s.kind == ScheduleKind::ColumnLoop ? kMaxUnroll : std::max(1, f_.device.unroll); unroll >= 1;
         unroll /= 2) {
      s.tile.unroll = unroll;
      if (unroll > 1 && s_.known[i] && int64_t{s.tile.vector} * unroll > s_.extents[i]) continue;
      for (int64_t bytes : kProgramBytes) {
        s.traversal.program_bytes = bytes;
        flavours(s, i);
      }
    }
  }
  void flavours(Schedule s, size_t i) {
    if (s.kind == ScheduleKind::Flat) {
      visit_(s, 1);
      return crossings(s, i);
    }
    for (bool in_output : {true, false}) {
      if (!in_output && s_.rounds[0].rounds == 1) continue;
      s.residency.cache_in_output = in_output;
      for (int points : {0, 8}) {
        if (points > 0 && s.kind != ScheduleKind::ColumnLoop) continue;
        s.traversal.prefetch_points = points;
        parts(s);
      }
      if (!online_ || s.kind != ScheduleKind::RowLoop) continue;
      // Chunks of two streams fit the first-level cache.
      Schedule online = s;
      online.traversal.online = true;
      online.traversal.chunk = std::max(int64_t{s.tile.vector} * s.tile.unroll, power_below(f_.device.l1_bytes / 8));
      parts(online);
    }
  }
  void parts(Schedule s) {
    const bool shared =
        sized_ && (s.kind == ScheduleKind::ColumnLoop ? splits_columns_ : splits_rows_[s.traversal.online]);
    for (int parts = 1; parts <= (shared ? kMaxParts : 1); parts *= 2) {
      s.cooperation.programs_per_row = parts;
      visit_(s, parts);
    }
  }
  // Blocks that are long along an axis on which a transposed operand is contiguous.
  void crossings(Schedule s, size_t i) {
    s.kind = ScheduleKind::Tiled2D;
    auto along = [&](const SizedStream& t) { return t.affine(i) && t.step[i] == 1; };
    if (std::none_of(s_.streams.begin(), s_.streams.end(), along)) return; // this is the cross axis
    for (size_t cross = 0; cross < s_.extents.size(); ++cross) {
      if (cross == i || std::none_of(s_.streams.begin(), s_.streams.end(), [&](const SizedStream& t) {
            return t.affine(i) && t.affine(cross) && (t.deps >> i & 1) && t.step[i] != 1 && t.step[cross] == 1;
          }))
        continue;
      s.placement.cross_axis = static_cast<int>(cross);
      constexpr int kLaneBytes = 4; // of host code's vectors, llvm/emit.h
      for (int square : {s.tile.vector * kLaneBytes == f_.device.vector_bytes ? s.tile.vector : 1, 1}) {
        s.tile.square = square;
        visit_(s, 1);
        if (square == 1) break;
      }
    }
  }

  const BlockFacts& f_;
  const SizedFacts& s_;
  const VisitSchedule& visit_;
  bool online_ = false;                                               // there are sums that can be folded online
  bool splits_columns_ = false, splits_rows_[2] = {}, sized_ = false; // programs may share columns; rows, [1]: online
};

// Why a schedule is not right for a nest; empty: it is.
std::string refusal(const BlockFacts& f, const Schedule& s, std::span<const ExtentRange> extents) {
  const Domain& d = f.d;
  const auto axes = static_cast<int>(d.axes.size());
  if (static_cast<int>(extents.size()) != axes)
    return "it is for " + text(static_cast<int64_t>(extents.size())) + " axes, the nest has " + text(axes);
  for (size_t i = 0; i < extents.size(); ++i) {
    const SymRange all = d.env.range(d.env.simplify(f.extent(i)));
    if (extents[i].min > all.lo || extents[i].max < all.hi || (all.lo != all.hi && extents[i].multiple_of > 1))
      return "a host has one kernel for all sizes, and axis " + text(static_cast<int64_t>(i)) + " is not always " +
             text(extents[i].min) + " to " + text(extents[i].max);
  }
  const Placement& p = s.placement;
  if (axes == 0) return p.axis == -1 && s.kind == ScheduleKind::Flat ? "" : "there is no axis";
  if (p.axis < 0 || p.axis >= axes) return "there is no axis " + text(p.axis);
  if (!power(s.tile.vector, kMaxVector) || !power(s.tile.unroll, kMaxUnroll))
    return "vector " + text(s.tile.vector) + " and unroll " + text(s.tile.unroll) + " are no powers of two up to " +
           text(kMaxVector) + " and " + text(kMaxUnroll);
  const bool row = f.is_row(static_cast<size_t>(p.axis)), crossed = s.kind == ScheduleKind::Tiled2D;
  const ScheduleKind want = d.reduces ? (row ? ScheduleKind::RowLoop : ScheduleKind::ColumnLoop)
                            : crossed ? ScheduleKind::Tiled2D
                                      : ScheduleKind::Flat;
  if (s.kind != want) return "the nest's schedules along this axis are '" + std::string(name(want)) + "'";
  if (crossed && (p.cross_axis < 0 || p.cross_axis >= axes || p.cross_axis == p.axis))
    return "there is no cross axis " + text(p.cross_axis);
  if (s.tile.square != 1 && (!power(s.tile.square, kMaxVector) || (crossed && !squares_fit(f.nest, d))))
    return "squares of " + text(s.tile.square) + " are no power of two, or something is gathered or masked";
  if (s.traversal.program_bytes < 1 || s.traversal.program_bytes > int64_t{1} << 30)
    return "program_bytes is " + text(s.traversal.program_bytes) + ", not 1 to 2^30";
  if (s.traversal.prefetch_points < 0 || s.traversal.prefetch_bytes < 0) return "a distance of prefetches is negative";
  Domain own = d;
  if (s.traversal.online) {
    const int64_t wide = int64_t{s.tile.vector} * s.tile.unroll;
    if (!row || !online_fits(f.nest, d)) return "sums are folded online along rows of one axis, without checks";
    if (s.traversal.chunk < 1 || s.traversal.chunk % wide != 0)
      return "chunk " + text(s.traversal.chunk) + " is no multiple of the full tile of " + text(wide);
    const OnlineSums sums = find_online(f.nest, own);
    if (std::none_of(sums.begin(), sums.end(), [](const OnlineSum& o) { return o.kind != OnlineSum::Kind::None; }))
      return "no sum can be folded online";
  }
  if (s.cooperation.programs_per_row == 1) return "";
  if (!power(s.cooperation.programs_per_row, kMaxParts))
    return "programs_per_row is " + text(s.cooperation.programs_per_row) + ", no power of two up to " + text(kMaxParts);
  if (!f.constant(d.row_count()) || !f.constant(f.points(AxisRole::Outer)))
    return "programs share rows of known number and length, for which there is memory";
  return splits(f.nest, own, s.kind) ? "" : "programs share rows whose only results are one stage of reductions";
}

} // namespace

void for_each_host_schedule(const BlockFacts& facts, const SizedFacts& sized, const VisitSchedule& visit) {
  HostSpace(facts, sized, visit).run();
}

Legal legal_host(const BlockFacts& facts, const Schedule& schedule, std::span<const ExtentRange> extents) {
  Legal l;
  l.schedule = schedule;
  l.refusal = refusal(facts, schedule, extents);
  return l;
}

} // namespace tessera
