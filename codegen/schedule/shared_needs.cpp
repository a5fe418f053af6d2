// The shared memory that a schedule takes of a block, before code is generated for it.
#include "codegen/layout/warpgroup.h"
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/contraction.h"

namespace tessera {
namespace {

// The bytes of the values that the nest folds: an extreme and its index are two.
int64_t folded_bytes(const BlockFacts& f) {
  int64_t bytes = 0;
  for (size_t n = 0; n < f.d.live.size(); ++n) {
    const ScalarNode& node = f.nest.dag[static_cast<ScalarId>(n)];
    if (!f.d.live[n] || node.op != ScalarOp::Reduce) continue;
    const bool arg = node.reduce == ReduceKind::ArgMax || node.reduce == ReduceKind::ArgMin;
    const ScalarNode& value = f.nest.dag[node.args[0]];
    bytes = std::max<int64_t>(bytes, std::max(4, info(value.dtype).bits / 8) + (arg ? 8 : 0));
  }
  return bytes;
}

class Needs {
public:
  Needs(const BlockFacts& facts, const Schedule& schedule)
      : f_(facts), s_(schedule),
        groups_(axis_groups(schedule.placement, facts.d.axes.size(), facts.contiguous_axis, facts.d.row_mask)) {}

  SharedNeeds run() const {
    SharedNeeds out;
    if (s_.tile.taps > 0) return out;
    if (s_.kind == ScheduleKind::BlockContraction) return contraction();
    if (s_.residency.cached_tiles > 0)
      out.resident = s_.residency.cached_tiles * elements() * f_.cached_element_bytes(s_.traversal.online);
    if (s_.access.staged) out.resident += staged();
    out.exchange = std::max(folds(), conversions());
    return out;
  }

private:
  [[nodiscard]] int64_t elements() const { return int64_t{s_.tile.rows} * s_.tile.columns; }
  [[nodiscard]] size_t of_domain(size_t axis) const {
    const int split = s_.placement.split_axis;
    return axis - (split >= 0 && axis > static_cast<size_t>(split) ? 1 : 0);
  }
  [[nodiscard]] bool is_row(const std::vector<size_t>& axes) const {
    return !axes.empty() && f_.is_row(of_domain(axes.front()));
  }
  [[nodiscard]] bool moves(const Stream& s, const std::vector<size_t>& axes) const {
    return std::any_of(axes.begin(), axes.end(), [&](size_t a) { return s.deps >> of_domain(a) & 1; });
  }

  // Stages of the tiles of plain loads, and of those that warpgroups compute a left factor from; other factors, and what is
  // stored of the sums, change threads.
  [[nodiscard]] SharedNeeds contraction() const {
    SharedNeeds out;
    if (!f_.contraction) return out;
    const int64_t each = info(f_.contraction->dtype).bits / 8;
    const int left = f_.contraction->left(s_.placement.row_axes, s_.placement.column_axes);
    const bool warpgroups = by_warpgroups(
        s_.tile, f_.contraction->warpgroup_needs(s_.placement.row_axes, s_.placement.column_axes), f_.device);
    int64_t computed = 0;
    if (warpgroups && f_.contraction->computed[left == 1 ? 1 : 0]) {
      const uint64_t rows = s_.placement.row_axes, depth = s_.placement.depth_axes;
      for (const Stream& s : f_.streams)
        if (!s.store && (s.deps & rows) && (s.deps & depth))
          out.resident += int64_t{s_.tile.rows} * s_.tile.depth * s.bytes * std::max(2, s_.traversal.num_stages);
    }
    for (size_t i : {size_t{0}, size_t{1}}) {
      const int64_t side = static_cast<int>(i) == left ? s_.tile.rows : s_.tile.columns,
                    bytes = side * s_.tile.depth * each;
      for (const ScalarId part : f_.contraction->factors[i]) {
        const bool plain = f_.nest.dag[part].op == ScalarOp::Load;
        out.resident += plain ? bytes * std::max(2, s_.traversal.num_stages) : 0;
        computed += bytes;
      }
    }
    int64_t stored = 0;
    for (const Stream& s : f_.streams)
      if (!(s.deps & f_.d.row_mask)) stored = std::max<int64_t>(stored, s.bytes);
    // Warpgroups store what they have; a kernel whose exchanges do not fit has fewer stages.
    out.exchange = warpgroups ? layout::kExchangeBytes : std::max(computed, elements() * stored);
    return out;
  }

  // Each warp along the folded dimension leaves a value for each position of the other one.
  [[nodiscard]] int64_t folds() const {
    if (!f_.d.reduces) return 0;
    const bool along = is_row(groups_.columns);
    if (!along && !is_row(groups_.rows)) return 0;
    const int64_t kept = along ? s_.tile.rows : s_.tile.columns;
    const int64_t beside = along ? 1 : std::max<int64_t>(1, kept / (32 * f_.vector)); // warps along what is kept
    return kept * std::max<int64_t>(1, s_.tile.warps / beside) * folded_bytes(f_);
  }

  // The bytes for accesses that are not contiguous along the tile's columns: other threads load them than compute with
  // them.
  [[nodiscard]] int64_t conversions() const {
    int64_t bytes = 0;
    for (const Stream& s : f_.streams) {
      if (!moves(s, groups_.columns)) continue;
      const bool square = s_.tile.rows > 1 && moves(s, groups_.rows);
      const bool apart = groups_.columns.size() > 1 || !f_.contiguous(s, of_domain(groups_.columns.back()));
      if (!apart || (!square && s_.tile.rows > 1)) continue;
      int64_t each = std::max(4, s.bytes);
      for (const auto& term : s.access->terms) // the index is exchanged, too
        each = std::max<int64_t>(each, info(f_.nest.dag[term.first].dtype).bits / 8);
      bytes = std::max(bytes, elements() * each);
    }
    return bytes;
  }

  // Operands that lie in memory across the tile, with the accesses at both ends of each column.
  [[nodiscard]] int64_t staged() const {
    int64_t bytes = 0;
    for (const Stream& s : f_.streams) {
      if (s.store || groups_.columns.empty() || f_.contiguous(s, of_domain(groups_.columns.back()))) continue;
      if (!moves(s, groups_.rows) || !moves(s, groups_.columns)) continue;
      const int64_t access = kAccessBytes / std::max(1, s.bytes);
      bytes += (s_.tile.columns + s_.access.alignment_peel) * (s_.tile.rows + 3 * access) * s.bytes;
    }
    return bytes;
  }

  const BlockFacts& f_;
  const Schedule& s_;
  const AxisGroups groups_;
};

} // namespace

SharedNeeds shared_needs(const BlockFacts& facts, const Schedule& schedule) { return Needs(facts, schedule).run(); }

} // namespace tessera
