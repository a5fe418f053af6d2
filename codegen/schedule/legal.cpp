#include "codegen/schedule/legal.h"
#include "codegen/layout/dot.h"
#include "codegen/schedule/block_space.h"
#include "codegen/schedule/cooperation.h"
#include "codegen/schedule/host_space.h"
#include "codegen/schedule/window_facts.h"
#include "codegen/tile/rules.h"
#include <algorithm>
#include <bit>

namespace tessera {
namespace {

constexpr int64_t kMaxElements = 256;         // of a thread's tile: what comes from a file may be anything
constexpr int64_t kMaxBlocksPerRow = 1 << 14; // of blocks that do not wait
constexpr int64_t kPartialBytes = 4;          // of an element of a partial sum of a contraction

bool power(int64_t n) { return n >= 1 && std::has_single_bit(static_cast<uint64_t>(n)); }
std::string text(int64_t n) { return std::to_string(n); }

class Check {
public:
  Check(const BlockFacts& facts, const Schedule& schedule, std::span<const ExtentRange> extents)
      : f_(facts), s_(schedule), extents_(extents) {
    out_.schedule = schedule;
  }
  Legal run() {
    if (contracts()) {
      out_.refusal = first({[&] { return numbers(); }, [&] { return contraction(); }, [&] { return sizes(); },
                            [&] { return shared(); }});
      return std::move(out_);
    }
    out_.refusal = first({[&] { return numbers(); }, [&] { return placement(); }, [&] { return exchanges(); },
                          [&] { return cooperation(); }, [&] { return sizes(); }, [&] { return alignment(); },
                          [&] { return shared(); }});
    return std::move(out_);
  }

private:
  using Refusal = std::string; // empty: none
  static Refusal first(std::initializer_list<std::function<Refusal()>> checks) {
    for (const auto& check : checks)
      if (Refusal r = check(); !r.empty()) return r;
    return {};
  }

  [[nodiscard]] Refusal numbers() const {
    if (s_.kind < ScheduleKind::BlockFlat) return "a schedule '" + std::string(name(s_.kind)) + "' is for hosts";
    const TileShape& t = s_.tile;
    for (auto [what, n] : {std::pair{"rows", t.rows},
                           {"columns", t.columns},
                           {"warps", t.warps},
                           {"contiguous", t.contiguous},
                           {"depth", t.depth},
                           {"fold_steps", s_.traversal.fold_steps},
                           {"alignment_peel", s_.access.alignment_peel}})
      if (!power(n) || n > 1 << 20) return std::string(what) + " is " + text(n) + ", no power of two";
    if (t.warps > 32) return "a block of " + text(t.warps) + " warps has more than 1024 threads";
    if (int64_t{t.rows} * t.columns > kMaxElements * 32 * t.warps)
      return "a tile [" + text(t.rows) + ", " + text(t.columns) + "] has more than " + text(kMaxElements) +
             " elements for each of " + text(int64_t{32} * t.warps) + " threads";
    if (s_.traversal.rows_in_flight < 1 || s_.traversal.rows_in_flight > tile::kMaxStages)
      return "rows_in_flight is " + text(s_.traversal.rows_in_flight) + ", not 1 to " + text(tile::kMaxStages);
    const int most_stages = contracts() ? tile::kMaxStages : 2;
    if (s_.traversal.num_stages < 1 || s_.traversal.num_stages > most_stages)
      return "num_stages is " + text(s_.traversal.num_stages) + ", not 1 to " + text(most_stages);
    if (s_.traversal.group_rows < 1 || s_.traversal.group_rows > 1 << 20) return "group_rows is out of range";
    if (!contracts() && (t.depth > 1 || s_.traversal.group_rows > 1 || s_.placement.depth_axes != 0 ||
                         s_.placement.row_box != 0 || s_.cooperation.split_k != 1 || s_.cooperation.cluster != 1))
      return "a depth, its segments, a box, groups of rows and clusters are a contraction's";
    if (s_.cooperation.split_k < 1 || s_.cooperation.split_k > Contraction::kMaxSplit)
      return "split_k is " + text(s_.cooperation.split_k) + ", not 1 to " + text(Contraction::kMaxSplit);
    if (s_.cooperation.cluster < 1 || s_.cooperation.cluster > Contraction::kMaxCluster)
      return "cluster is " + text(s_.cooperation.cluster) + ", not 1 to " + text(Contraction::kMaxCluster);
    if (s_.access.min_blocks < 0 || s_.access.min_blocks > 32)
      return "min_blocks is " + text(s_.access.min_blocks) + ", not 0 to 32";
    if (s_.residency.cached_tiles < 0 || s_.residency.cached_tiles > 1 << 20 || s_.cooperation.max_blocks < 0 ||
        s_.cooperation.max_blocks > 1 << 20)
      return "cached_tiles or max_blocks is out of range";
    if (t.outputs < 1 || t.outer_outputs < 1 || t.taps < 0 || t.taps > WindowFacts::kMaxTaps ||
        t.outputs > WindowFacts::kMaxOutputs || t.outer_outputs > WindowFacts::kMaxOuterOutputs)
      return "a window's outputs or taps are out of range";
    if (t.taps > 0 && int64_t{t.outputs} * t.outer_outputs * t.columns > kMaxElements)
      return "a thread has more than " + text(kMaxElements) + " results of a window";
    return {};
  }

  [[nodiscard]] size_t axes() const { return f_.d.axes.size() + (s_.placement.split_axis >= 0 ? 1 : 0); }
  [[nodiscard]] AxisRole role(size_t axis) const {
    const int split = s_.placement.split_axis;
    return f_.d.axes[axis - (split >= 0 && axis > static_cast<size_t>(split) ? 1 : 0)].role;
  }
  [[nodiscard]] bool folds(const std::vector<size_t>& g) const {
    return !g.empty() && role(g.front()) == AxisRole::Row;
  }
  [[nodiscard]] bool along() const { return folds(out_.groups.columns); }
  [[nodiscard]] bool walks() const { return s_.traversal.loop || is_cooperative(); }
  [[nodiscard]] bool contracts() const { return s_.kind == ScheduleKind::BlockContraction; }
  [[nodiscard]] bool is_cooperative() const { return s_.kind == ScheduleKind::BlockCooperative; }

  Refusal contraction() {
    if (!f_.contraction) return "the nest is no sum of products that tensor cores compute";
    const Placement& p = s_.placement;
    if (p.depth_axes == 0 || (p.depth_axes & ~f_.d.row_mask) != 0) return "the depth is not along reduced axes";
    if (f_.contraction->left(p.row_axes, p.column_axes) < 0)
      return "rows and columns are not along axes of one factor each";
    if (const auto& groups = f_.contraction->groups;
        groups && (p.row_axes != groups->axis || p.row_box != 0 || s_.cooperation.split_k > 1))
      return "a tile has rows of one group, and all of their depth";
    if (f_.contraction->range && s_.cooperation.split_k > 1) return "data say where the depth begins and ends";
    Schedule plain; // what a contraction has no use for
    plain.kind = s_.kind;
    plain.placement.row_axes = p.row_axes, plain.placement.column_axes = p.column_axes;
    plain.placement.depth_axes = p.depth_axes, plain.placement.row_box = p.row_box,
    plain.placement.rows_fastest = p.rows_fastest;
    plain.tile.rows = s_.tile.rows, plain.tile.columns = s_.tile.columns, plain.tile.depth = s_.tile.depth;
    plain.tile.warps = s_.tile.warps;
    plain.traversal.num_stages = s_.traversal.num_stages, plain.traversal.group_rows = s_.traversal.group_rows;
    plain.access.min_blocks = s_.access.min_blocks;
    plain.cooperation.max_blocks = s_.cooperation.max_blocks, plain.cooperation.split_k = s_.cooperation.split_k;
    plain.cooperation.cluster = s_.cooperation.cluster;
    if (plain != s_) return "a contraction has tiles, stages, groups of rows and numbers of blocks, no other field";
    if (s_.tile.rows < Contraction::kFragmentRows || s_.tile.columns < Contraction::kFragmentColumns ||
        s_.tile.depth * info(f_.contraction->dtype).bits / 8 < layout::kMmaDepthBytes)
      return "tiles are smaller than a fragment of tensor cores";
    if (s_.tile.depth > f_.contraction->max_depth())
      return "tensor cores do not sum so many products of these factors exactly enough";
    if (int64_t{s_.tile.rows} * s_.tile.columns <
        int64_t{Contraction::kFragmentRows} * Contraction::kFragmentColumns * s_.tile.warps)
      return "the tile has fewer fragments than the block has warps";
    out_.groups = axis_groups(p, f_.d.axes.size(), f_.contiguous_axis, f_.d.row_mask);
    out_.warpgroups = by_warpgroups(s_.tile, f_.contraction->warpgroup_needs(p.row_axes, p.column_axes), f_.device);
    if (Refusal no = cluster(); !no.empty()) return no;
    int64_t bits = 0;
    for (const int lanes : out_.groups.box) bits += std::countr_zero(static_cast<unsigned>(lanes));
    const size_t of_axes = kBoxBits * out_.groups.rows.size();
    const bool fits = (int64_t{1} << std::min<int64_t>(bits, 62)) == s_.tile.rows;
    if ((!out_.groups.box.empty() && !fits) || (of_axes < 64 && p.row_box >> of_axes != 0))
      return "a box of 2^" + text(bits) + " positions is not the tile's rows";
    return {};
  }

  // Blocks of a cluster go through the depth in step, and all blocks of the grid are in clusters.
  [[nodiscard]] Refusal cluster() const {
    const int blocks = s_.cooperation.cluster;
    if (blocks == 1) return {};
    if (!out_.warpgroups) return "blocks share tiles in the rings of warpgroups alone";
    if (f_.contraction->groups || f_.contraction->range || s_.cooperation.split_k > 1)
      return "blocks of a cluster have tiles of neighbouring rows, and the same depth";
    if (s_.cooperation.max_blocks % blocks != 0)
      return text(s_.cooperation.max_blocks) + " blocks are no whole clusters of " + text(blocks);
    return {};
  }

  Refusal placement() {
    const Placement& p = s_.placement;
    if (p.split_axis < -1 || p.split_axis >= static_cast<int>(f_.d.axes.size()))
      return "there is no axis " + text(p.split_axis) + " to split";
    auto outer_axis = [&](int axis) {
      return axis >= 0 && axis < static_cast<int>(f_.d.axes.size()) && !f_.is_row(static_cast<size_t>(axis));
    };
    if (s_.tile.taps > 0 &&
        (!outer_axis(p.window_axis) || (s_.tile.outer_outputs > 1 && !outer_axis(p.outer_window_axis))))
      return "a window slides along an outer axis of the nest";
    if (s_.tile.taps > 0 && !WindowFacts::find(f_)) return "the nest is no window: it stores more than results of rows";
    if (p.split_axis >= 0 && is_cooperative()) return "cooperative blocks split no axis";
    const uint64_t all = axes() >= 63 ? ~uint64_t{0} : (uint64_t{1} << axes()) - 1;
    if (axes() > 62 || (p.row_axes & p.column_axes) || ((p.row_axes | p.column_axes) & ~all))
      return "row_axes and column_axes are no disjoint sets of " + text(static_cast<int64_t>(axes())) + " axes";
    out_.groups = axis_groups(p, f_.d.axes.size(), f_.contiguous_axis, f_.d.row_mask);
    for (const std::vector<size_t>* group : {&out_.groups.rows, &out_.groups.columns})
      for (size_t axis : *group)
        if (role(axis) != role(group->front())) return "a dimension of the tile has reduced axes and others";
    // Reductions fold along one dimension of the tile, which then holds all of the row's axes. Those of a window are
    // written out.
    for (size_t axis : out_.groups.points)
      if ((role(axis) == AxisRole::Row) != (s_.tile.taps > 0))
        return s_.tile.taps > 0 ? "an outer axis of a window is the grid's" : "a reduced axis is the grid's";
    if (folds(out_.groups.rows) && folds(out_.groups.columns)) return "both dimensions of the tile are reduced";
    if (s_.traversal.rows_in_flight > 1 &&
        (s_.traversal.loop || s_.access.alignment_peel > 1 || !along() || out_.groups.rows.empty() || is_cooperative()))
      return "rows are in flight where the tile holds them whole, and they begin at an access";
    return {};
  }

  // A stream of the whole tile that is not contiguous along its columns may be loaded by other threads than compute with
  // it: it changes threads through shared memory.
  [[nodiscard]] Refusal exchanges() const {
    if (s_.tile.rows == 1 || s_.tile.columns == 1 || s_.tile.taps > 0) return {};
    const int64_t elements = int64_t{s_.tile.rows} * s_.tile.columns;
    const int split = s_.placement.split_axis;
    auto of_domain = [&](size_t axis) { return axis - (split >= 0 && axis > static_cast<size_t>(split) ? 1 : 0); };
    auto moves = [&](const Stream& s, const std::vector<size_t>& axes) {
      return std::any_of(axes.begin(), axes.end(), [&](size_t a) { return s.deps >> of_domain(a) & 1; });
    };
    const auto &rows = out_.groups.rows, &columns = out_.groups.columns;
    for (const Stream& s : f_.streams)
      if (elements * s.bytes > BlockFacts::kMaxExchangeBytes && moves(s, rows) && moves(s, columns) &&
          !f_.contiguous(s, of_domain(columns.back())))
        return "threads exchange " + text(elements * s.bytes) + " bytes of a tile, a block has shared memory for " +
               text(BlockFacts::kMaxExchangeBytes);
    return {};
  }

  Refusal cooperation() {
    if (!is_cooperative()) return {};
    if (!along() && !folds(out_.groups.rows)) return "cooperative blocks have nothing to fold";
    if (along() ? s_.tile.rows != 1 : !s_.traversal.loop || s_.cooperation.max_blocks < 1)
      return along() ? "cooperative blocks of a row have one row" : "cooperative blocks of columns loop over them";
    const Cooperative c = Sharing(f_, s_.traversal.online).cooperative(s_);
    if (auto blocks = c.blocks_per_row.as_const(); blocks && *blocks < 1) return "a row has no block";
    // Each of those that wait reads what all of a row have folded.
    const int64_t most = c.grid_barrier ? int64_t{kMaxElements} * 32 * s_.tile.warps : kMaxBlocksPerRow;
    if (c.max_blocks_per_row < 1 || c.max_blocks_per_row > most)
      return "a row has up to " + text(c.max_blocks_per_row) + " blocks, not 1 to " + text(most);
    out_.blocks_per_row = c.blocks_per_row;
    out_.max_blocks_per_row = c.max_blocks_per_row;
    out_.grid_barrier = c.grid_barrier;
    out_.mailboxes = c.mailboxes;
    return {};
  }

  [[nodiscard]] Refusal shared() const {
    const SharedNeeds needs = shared_needs(f_, s_);
    if (needs.resident + needs.exchange <= f_.device.shared_bytes) return {};
    return "tiles of " + text(needs.resident) + " bytes are resident next to exchanges of " + text(needs.exchange) +
           ", a block has " + text(f_.device.shared_bytes) + " bytes of shared memory";
  }

  // A condition, where it is not known to hold. `what` the expression is of, for the refusal.
  Refusal require(const SymExpr& e, int64_t multiple, int64_t min, int64_t max, const std::string& what) {
    SymRange known = f_.d.env.range(e);
    if (known.lo > max || known.hi < min)
      return what + " of " + e.str() + " is not " + text(min) + " to " + (max == INT64_MAX ? "any" : text(max));
    if (known.lo < min || known.hi > max) out_.conditions.push_back({e, 1, min, max});
    if (multiple <= 1) return {};
    Multiple m = f_.multiple(e, multiple);
    if (m.condition) out_.conditions.push_back(*m.condition);
    if (m.known || m.condition) return {};
    return what + " of " + e.str() + " is no multiple of " + text(multiple);
  }

  // Tiles of a contraction's results.
  [[nodiscard]] SymExpr tiles() const {
    auto count = [&](const std::vector<size_t>& axes) {
      SymExpr n = 1;
      for (const size_t axis : axes) n *= f_.extent(axis);
      return n;
    };
    return f_.d.env.simplify(count(out_.groups.points) * ceildiv(count(out_.groups.rows), s_.tile.rows) *
                             ceildiv(count(out_.groups.columns), s_.tile.columns));
  }

  Refusal sizes() {
    if (extents_.size() != f_.d.axes.size())
      return "it is for " + text(static_cast<int64_t>(extents_.size())) + " axes, the nest has " +
             text(static_cast<int64_t>(f_.d.axes.size()));
    for (size_t i = 0; i < extents_.size(); ++i) {
      const ExtentRange& r = extents_[i];
      if (Refusal no = require(f_.d.env.simplify(f_.extent(i)), r.multiple_of, r.min, r.max, "an axis"); !no.empty())
        return no;
    }
    // Conditions that the schedule relies on, whatever nest it is for.
    if (out_.grid_barrier && s_.cooperation.max_blocks > 0) {
      const SymExpr rows = along() ? f_.d.env.simplify(f_.points(AxisRole::Outer)) : column_groups(f_, s_);
      if (Refusal no = require(rows, 1, 1, s_.cooperation.max_blocks, "a number of cooperations"); !no.empty())
        return no;
    }
    if (out_.blocks_per_row && along())
      if (Refusal no = require(*out_.blocks_per_row, 1, 1, out_.max_blocks_per_row, "a number of blocks"); !no.empty())
        return no;
    if (s_.cooperation.split_k > 1) { // partial sums stay in the level-2 cache
      const int64_t each = kPartialBytes * s_.cooperation.split_k * s_.tile.rows * s_.tile.columns;
      if (Refusal no = require(tiles(), 1, 0, f_.device.l2_bytes / each, "a number of tiles"); !no.empty()) return no;
    }
    if (s_.placement.split_axis >= 0) {
      const SymExpr split = f_.d.env.simplify(f_.extent(static_cast<size_t>(s_.placement.split_axis)));
      if (Refusal no = require(split, s_.tile.columns, 0, INT64_MAX, "a split axis"); !no.empty()) return no;
    }
    // Results that do not exist are masked along window_axis alone.
    if (s_.tile.taps > 0 && s_.tile.outer_outputs > 1) {
      const SymExpr outer = f_.d.env.simplify(f_.extent(static_cast<size_t>(s_.placement.outer_window_axis)));
      if (f_.d.env.divisor(outer) % s_.tile.outer_outputs != 0)
        return "a window's outer axis of " + outer.str() + " is not known to be a multiple of " +
               text(s_.tile.outer_outputs);
    }
    if (!f_.d.reduces || walks() || s_.tile.taps > 0 || contracts()) return {};
    const SymExpr row = f_.d.env.simplify(f_.d.row_count());
    const int64_t lanes = along() ? s_.tile.columns : s_.tile.rows;
    if (lanes > 1) return require(row, 1, 0, lanes - s_.access.alignment_peel + 1, "a row");
    return row.is_const(1) ? Refusal() : "a row of " + row.str() + " does not fit a tile of 1";
  }

  Refusal alignment() {
    Domain d = f_.d;
    for (const SizeCondition& c : out_.conditions) assume(d.env, c);
    const int split = s_.placement.split_axis;
    if (split >= 0 && d.env.divisor(f_.extent(static_cast<size_t>(split))) % s_.tile.columns != 0)
      return "axis " + text(split) + " is not known to be a multiple of " + text(s_.tile.columns);
    // Under these conditions rows must not all begin at whole accesses, as they are lowered: with groups of axes as one.
    auto shifted = [&] {
      Domain whole = d;
      if (split >= 0) split_axis(f_.nest, whole, static_cast<size_t>(split), s_.tile.columns);
      const BlockSpace space = group_axes(f_.nest, std::move(whole), out_.groups);
      return shifted_start(f_.graph, f_.nest, space.domain, static_cast<size_t>(space.column), peel_access(s_),
                           s_.access.alignment_peel)
          .has_value();
    };
    if (s_.access.alignment_peel > 1 && (out_.groups.columns.size() != 1 || !shifted()))
      return "rows have several axes, or all begin at multiples of " + text(s_.access.alignment_peel);
    // A single row begins at a whole access, whatever its length.
    const bool single = f_.constant(f_.points(AxisRole::Outer)) == 1 && out_.groups.columns.size() == 1;
    if (s_.tile.contiguous > 1 && s_.access.alignment_peel == 1 && f_.d.reduces && !single &&
        d.env.divisor(f_.d.row_count()) % s_.tile.contiguous != 0)
      return "rows are not known to be multiples of " + text(s_.tile.contiguous);
    return {};
  }

  const BlockFacts& f_;
  const Schedule& s_;
  const std::span<const ExtentRange> extents_;
  Legal out_;
};

} // namespace

Legal legal(const BlockFacts& facts, const Schedule& schedule, std::span<const ExtentRange> extents) {
  if (!facts.device.is_gpu()) return legal_host(facts, schedule, extents);
  return Check(facts, schedule, extents).run();
}

std::vector<ExtentRange> ranges_of(const BlockFacts& f, std::span<const int64_t> extents, const CallSizes& sizes) {
  auto divisible = [&](const SymExpr& e, int64_t k) {
    const Multiple m = f.multiple(e, k);
    return m.known || (m.condition && holds(std::span(&*m.condition, 1), sizes));
  };
  std::vector<ExtentRange> out;
  for (size_t i = 0; i < extents.size(); ++i) {
    const int64_t n = extents[i];
    out.push_back(f.constant(f.extent(i)) ? ExtentRange{n, n, 1} : bucket_of(n));
    auto along = [&](const Stream& s) { return f.contiguous(s, i); };
    if (std::none_of(f.streams.begin(), f.streams.end(), along)) out.back().multiple_of = 1;
    while (out.back().multiple_of > 1 && !divisible(f.extent(i), out.back().multiple_of)) out.back().multiple_of /= 2;
  }
  return out;
}

bool holds(std::span<const SizeCondition> conditions, const CallSizes& sizes) {
  return std::all_of(conditions.begin(), conditions.end(), [&](const SizeCondition& c) {
    auto v = c.value.eval(sizes);
    return v.ok() && c.allows(*v);
  });
}

void assume(ShapeEnv& env, const SizeCondition& c) {
  if (c.value.is_symbol()) {
    env.set_divisor(c.value, c.multiple_of);
    SymRange r = env.range(c.value);
    env.set_range(c.value, {std::max(r.lo, c.min), std::min(r.hi, c.max)});
  }
}

} // namespace tessera
