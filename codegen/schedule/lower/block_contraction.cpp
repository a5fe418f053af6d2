// A program computes a tile [R, C] of sums. The sides of the tile are bound in turn to what is computed:
//
//   left factor    [R, D]   rows, depth
//   right factor   [D, C]   depth, columns
//   sums           [R, C]   rows, columns; and all that is computed of them
//
// The loop's index runs over the depth in tiles of D, for each step (reduced axes that the tile has one position of)
// after the other. Elements beyond the depth are 0 in both factors. Values of a factor that do not vary along the
// depth are computed before the loop. Programs that share a tile have segments of the loop, of equal length but for the
// last ones, which may be shorter or empty.
#include "codegen/schedule/lower/block_contraction.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace tessera::block {

V Product::take_blocks(V number, const SymExpr& row_blocks, const SymExpr& column_blocks, bool points) {
  const V rows = sizes_.number(row_blocks), columns = sizes_.number(column_blocks),
          group = sizes_.constant(std::max(1, schedule_.traversal.group_rows / schedule_.cooperation.cluster));
  V point = number;
  if (points) {
    const V blocks = sizes_.number(d_.env.simplify(row_blocks * column_blocks));
    point = op(ScalarOp::Div, number, blocks);
    number = op(ScalarOp::Mod, number, blocks);
  }
  const V of_group = op(ScalarOp::Mul, columns, group);
  const V first = op(ScalarOp::Mul, op(ScalarOp::Div, number, of_group), group);
  const V height = op(ScalarOp::Min, op(ScalarOp::Sub, rows, first), group); // of the last group: what is left
  const V inside = op(ScalarOp::Mod, number, of_group);
  sides_[0].blocks = op(ScalarOp::Add, op(ScalarOp::Mod, inside, height), first);
  sides_[1].blocks = op(ScalarOp::Div, inside, height);
  return point;
}

SymExpr Product::groups() const {
  const auto contraction = Contraction::find(graph_, nest_, d_);
  return contraction->groups ? contraction->groups->count : SymExpr(0);
}

// Where a group ends, within the rows; 0 unless it exists.
V Product::end_of(const Contraction::Groups& groups, V group, V exists) {
  const V end = b_.cast(b_.load(c_.pointers[static_cast<size_t>(groups.ends)], group, exists), DType::I64);
  return op(ScalarOp::Min, op(ScalarOp::Max, end, sizes_.constant(0)), sizes_.number(axis(sides_[0]).extent));
}

void Product::take_group() {
  const auto contraction = Contraction::find(graph_, nest_, d_);
  if (!contraction->groups) return;
  const Contraction::Groups& groups = *contraction->groups;
  Side& rows = sides_[0];
  const V count = sizes_.number(groups.count), lanes = sizes_.constant(rows.lanes), zero = sizes_.constant(0);
  constexpr int64_t kMaxGroups = int64_t{1} << 30;
  const auto most = static_cast<uint64_t>(std::clamp<int64_t>(d_.env.range(groups.count).hi, 1, kMaxGroups));
  V group = zero; // how many groups have their last tile before this one
  for (auto step = static_cast<int64_t>(std::bit_floor(most)); step > 0; step /= 2) {
    const V last = op(ScalarOp::Add, group, sizes_.constant(step - 1)),
            next = op(ScalarOp::Add, group, sizes_.constant(step));
    const V exists = op(ScalarOp::Lt, last, count);
    const V first = op(ScalarOp::Add, op(ScalarOp::Div, end_of(groups, last, exists), lanes), next);
    const V passed = op(ScalarOp::And, exists, op(ScalarOp::Le, first, rows.blocks));
    group = b_.scalar(ScalarOp::Select, std::array{passed, next, group});
  }
  const V begin = end_of(groups, op(ScalarOp::Sub, group, sizes_.constant(1)), op(ScalarOp::Lt, zero, group));
  const V tile = op(ScalarOp::Sub, rows.blocks, op(ScalarOp::Add, op(ScalarOp::Div, begin, lanes), group));
  const V exists = op(ScalarOp::Lt, group, count);
  rows.first = op(ScalarOp::Add, begin, op(ScalarOp::Mul, tile, lanes));
  rows.end =
      b_.scalar(ScalarOp::Select, std::array{exists, end_of(groups, group, exists), sizes_.number(axis(rows).extent)});
  memo_.remember(static_cast<size_t>(groups.group), group);
  multiplies_ = op(ScalarOp::And, exists, op(ScalarOp::Lt, rows.first, rows.end));
}

// Values of a factor that do not vary along the depth, and what its offsets have of the sides of the tile: the builder
// uses them again in the loop.
void Product::hoist(ScalarId factor) {
  std::vector<char> needed(static_cast<size_t>(factor) + 1);
  needed.back() = 1;
  std::vector<ScalarId> fixed, loads;
  for (ScalarId id = factor; id >= 0; --id) {
    const ScalarNode& n = node(id);
    if (!needed[static_cast<size_t>(id)] || !d_.live[static_cast<size_t>(id)] || n.op == ScalarOp::Const ||
        n.op == ScalarOp::Index)
      continue;
    if (!d_.row_varying(id)) {
      if (need_is_known(d_, c_.needs, id, ~d_.row_mask, 0)) fixed.push_back(id);
      continue;
    }
    if (n.op == ScalarOp::Load) loads.push_back(id);
    for (ScalarId a : n.args) needed[static_cast<size_t>(a)] = 1;
  }
  for (auto id = fixed.rbegin(); id != fixed.rend(); ++id) static_cast<void>(scalars_.value(*id));
  std::unordered_map<uint64_t, SymExpr> first;
  for (int axis : {c_.depth, c_.step})
    if (axis >= 0) first.emplace(d_.axes[static_cast<size_t>(axis)].var.symbol_id(), 0);
  for (ScalarId id : loads) sizes_.number(d_.env.simplify(d_.loads[static_cast<size_t>(id)].offset.substitute(first)));
}

V Product::zero_of(DType dtype) { return is_float(dtype) ? b_.const_f(dtype, 0) : b_.const_i(dtype, 0); }

// The bounds of the memory that a factor is loaded from, where bulk copies may load it. Then positions of rows and columns
// beyond the extents are loaded as well, wherever the memory has them: the sums of these are not stored. So the mask of
// an image's pixel is that it is in the image, in place of that there is such a result.
Product::MemoryBounds Product::bounds_of_memory(ScalarId id) const {
  MemoryBounds out;
  if (!legal_.warpgroups || node(id).op != ScalarOp::Load) return out;
  const Access& a = d_.loads[static_cast<size_t>(id)];
  const SymShape& shape = graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).shape;
  uint64_t tile = 0, met = 0;
  for (const Side& s : sides_) tile |= s.axes();
  for (size_t i = 0; i < a.index.size(); ++i) {
    const SymExpr &index = a.index[i], size = d_.env.simplify(shape[i]);
    const uint64_t deps = d_.axes_in(index), along = deps & tile;
    if (index.is_const(0)) continue;
    if (deps == 0 || (met & along) != 0 || std::popcount(along) > 1) return {};
    met |= along;
    const SymRange range = d_.env.range(index);
    if (along == 0) { // dimensions of which each tile has one position are one
      const bool inside = range.lo >= 0 && d_.env.simplify(sym_lt(index, size)).is_const(1);
      if (inside && !out.dimensions.empty() && out.dimensions.back().next == i && out.dimensions.back().inside) {
        Dimension& before = out.dimensions.back();
        before = {d_.env.simplify(before.index * size + index), d_.env.simplify(before.size * size), i + 1, true};
      } else {
        out.dimensions.push_back({index, size, i + 1, inside});
      }
      continue;
    }
    const Axis& axis = d_.axes[static_cast<size_t>(std::countr_zero(along))];
    if (index == axis.var && size == d_.env.simplify(axis.extent)) continue;
    const auto linear = index.linear_in(axis.var);
    if (!linear || d_.axes_in(linear->first) != 0 || d_.env.range(linear->first).lo < 1 || (along >> c_.depth & 1))
      return {};
    out.axes |= along;
    out.dimensions.push_back({index, size, i + 1, false});
  }
  if (a.predicate < 0 || out.dimensions.empty()) return out;
  // A predicate that says no more than these bounds need not be computed.
  std::vector<SymExpr> known;
  for (const Dimension& d : out.dimensions)
    for (const SymExpr& bound : {sym_le(0, d.index), sym_lt(d.index, d.size)}) known.push_back(d_.env.simplify(bound));
  const auto is_known = [&](const auto& self, const SymExpr& e) -> bool {
    if (e.op() == SymOp::And)
      return std::all_of(e.args().begin(), e.args().end(), [&](const SymExpr& x) { return self(self, x); });
    return std::find(known.begin(), known.end(), e) != known.end();
  };
  out.is_predicate = node(a.predicate).op == ScalarOp::Index &&
                     is_known(is_known, d_.env.simplify(d_.sym[static_cast<size_t>(a.predicate)]));
  return out;
}

// Masks the loads of a factor by the bounds of its memory.
void Product::bound_by(const MemoryBounds& memory, ScalarId id) {
  V mask = -1;
  for (const Dimension& d : memory.dimensions) {
    const V index = sizes_.number(d.index);
    if (d_.env.range(d.index).lo < 0)
      mask = both(mask, pointwise(b_, ScalarOp::Le, std::array{sizes_.constant(0), index}));
    mask = both(mask, pointwise(b_, ScalarOp::Lt, std::array{index, sizes_.number(d.size)}));
  }
  if (memory.is_predicate)
    memo_.remember(static_cast<size_t>(d_.loads[static_cast<size_t>(id)].predicate), mask);
  else
    c_.guard = mask;
}

// The tile of a factor from `base` on along the depth: of a load as it is in memory, else in the dtype.
V Product::factor(ScalarId id, bool left, DType dtype, V base) {
  const std::array<Side, 2> sums = sides_;
  Side depth;
  depth.axis = c_.depth;
  depth.lanes = schedule_.tile.depth;
  depth.dim = left ? 1 : 0;
  sides_[static_cast<size_t>(depth.dim)] = depth;
  const bool copied = node(id).op == ScalarOp::Load || legal_.warpgroups;
  const MemoryBounds memory = bounds_of_memory(id);
  const V guard = c_.guard;
  const V v = memo_.scoped([&] {
    sizes_.unbind_tile();
    for (Side& s : sides_) {
      placement_.place(s, s.axis == c_.depth ? base : s.base, !copied);
      if (copied) // even where they are always true: a bulk copy reads a tensor with bounds
        s.mask = placement_.bounds(s, s.axes() & ~memory.axes);
    }
    if (!memory.dimensions.empty()) bound_by(memory, id);
    // A step is one position of a dimension of memory, whose bound a bulk copy has to know as well.
    if (copied && memory.dimensions.empty() && c_.step >= 0 && (d_.deps[static_cast<size_t>(id)] >> c_.step & 1)) {
      const Axis& step = d_.axes[static_cast<size_t>(c_.step)];
      c_.guard =
          both(guard, pointwise(b_, ScalarOp::Lt, std::array{sizes_.number(step.var), sizes_.number(step.extent)}));
    }
    V value = full(node(id).op == ScalarOp::Load ? scalars_.stored_value(id) : b_.cast(scalars_.value(id), dtype));
    const Side& along = sides_[static_cast<size_t>(depth.dim)];
    const V inside = along.mask;
    if (inside < 0 || (node(id).op != ScalarOp::Load && placement_.always_whole(along))) return value;
    const auto beyond =
        value_of_zeros(nest_, id, [&](ScalarId load) { return d_.deps[static_cast<size_t>(load)] >> c_.depth & 1; });
    if (beyond && beyond->f == 0 && beyond->i == 0) return value;
    const V zero = zero_of(b_.kernel().type(value).dtype);
    return pointwise(b_, ScalarOp::Select, std::array{inside, value, zero});
  });
  sides_ = sums;
  c_.guard = guard;
  return v;
}

// The sums with the products of a step added: of one part, or the main one and the small one. `none`: the zeros that sums
// of a step begin with which is added in f32; -1: tensor cores add to the sum.
Values Product::add_products(std::span<const V> left, std::span<const V> right, V none, std::span<const V> sums) {
  if (none < 0) return {b_.dot(left[0], right[0], sums[0])};
  const V main = b_.dot(left[0], right[0], none);
  if (sums.size() == 1) return {pointwise(b_, ScalarOp::Add, std::array{sums[0], main})};
  V small = sums[1];
  for (size_t order = left.size() - 1; order > 0; --order) // the least ones first
    for (size_t i = 0; i <= order; ++i) small = b_.dot(left[i], right[order - i], small);
  return {pointwise(b_, ScalarOp::Add, std::array{sums[0], main}), small};
}

V Product::total(const Values& sums) {
  if (sums.size() == 1) return sums[0];
  const V infinity = b_.const_f(DType::F32, std::numeric_limits<double>::infinity());
  const V finite = pointwise(b_, ScalarOp::Lt, std::array{pointwise(b_, ScalarOp::Abs, std::array{sums[0]}), infinity});
  return pointwise(b_, ScalarOp::Select, std::array{finite, pointwise(b_, ScalarOp::Add, sums), sums[0]});
}

void Product::add_parameters() {
  const DType dtype = node(Contraction::find(graph_, nest_, d_)->fold).dtype;
  partials_ = b_.param("partial", {tile::Type::Kind::Pointer, dtype, {}}, true);
  out_.kernel.params.back().once = true;
  out_.workspaces.push_back({dtype, 0});
  counters_ = b_.param("counters", {tile::Type::Kind::Pointer, DType::I32, {}}, true);
}

SymExpr Product::share(const SymExpr& tiles) {
  tiles_ = out_.counters = tiles;
  const SymExpr programs = d_.env.simplify(tiles * schedule_.cooperation.split_k);
  out_.workspaces.back().count = d_.env.simplify(programs * (int64_t{schedule_.tile.rows} * schedule_.tile.columns));
  return programs;
}

// Programs that run at the same time have the same segment of different tiles: they find what they read in the level-2
// cache.
V Product::take_segment(V number) {
  const V tiles = sizes_.number(tiles_);
  segment_ = op(ScalarOp::Div, number, tiles);
  return tile_ = op(ScalarOp::Mod, number, tiles);
}

// Offsets [R, C] of the partial sums of a segment of the tile.
V Product::partial_offsets(V segment) {
  const int rows = schedule_.tile.rows, columns = schedule_.tile.columns;
  const V place = op(ScalarOp::Add, op(ScalarOp::Mul, tile_, sizes_.constant(schedule_.cooperation.split_k)), segment);
  const V first = op(ScalarOp::Mul, place, sizes_.constant(int64_t{rows} * columns));
  const V row = pointwise(b_, ScalarOp::Mul, std::array{b_.range(rows), sizes_.constant(columns)});
  const V column = pointwise(b_, ScalarOp::Add, std::array{b_.range(columns), first});
  return pointwise(b_, ScalarOp::Add, std::array{b_.expand_dims(row, 1), b_.expand_dims(column, 0)});
}

V Product::sum_of_segments(DType dtype) {
  constexpr int64_t kInFlight = 64, kMaxUnroll = 8; // elements of a thread; segments
  const int64_t segments = schedule_.cooperation.split_k,
                each = int64_t{schedule_.tile.rows} * schedule_.tile.columns / (32 * schedule_.tile.warps),
                unroll = std::clamp<int64_t>(kInFlight / each, 1, std::min(segments, kMaxUnroll));
  const V count = sizes_.constant(segments);
  const V none = b_.broadcast(zero_of(dtype), {schedule_.tile.rows, schedule_.tile.columns});
  return b_.for_loop(
      sizes_.constant(0), count, sizes_.constant(unroll), {none},
      [&](V first, std::span<const V> carried) -> Values {
        V sum = carried[0];
        for (int64_t i = 0; i < unroll; ++i) {
          const V segment = op(ScalarOp::Add, first, sizes_.constant(i));
          const V mask = segments % unroll == 0 ? -1 : b_.scalar(ScalarOp::Lt, std::array{segment, count});
          const V partial = b_.load(partials_, partial_offsets(segment), mask);
          sum = pointwise(b_, ScalarOp::Add, std::array{sum, partial});
        }
        return {sum};
      },
      1)[0];
}

// All that is computed of the sums.
void Product::finish(ScalarId fold, V sum) {
  sizes_.unbind_tile();
  for (Side& s : sides_) placement_.place(s, s.base, true);
  memo_.remember(static_cast<size_t>(fold), sum);
  c_.known = 1;
  scalars_.store_all();
}

void Product::body() {
  const Contraction contraction = *Contraction::find(graph_, nest_, d_);
  const int left = contraction.left(sides_[0].axes(), sides_[1].axes());
  const auto at = static_cast<size_t>(left);
  const std::vector<ScalarId>&a = contraction.factors[at], &b = contraction.factors[1 - at];
  sizes_.keep_positions();
  for (const auto* parts : {&a, &b})
    for (const ScalarId part : *parts) hoist(part);

  const SymExpr& depth = d_.axes[static_cast<size_t>(c_.depth)].extent;
  const SymExpr whole = d_.env.simplify(ceildiv(depth, schedule_.tile.depth) * schedule_.tile.depth);
  const V of_step = c_.step < 0 ? -1 : sizes_.number(whole);
  const SymExpr all = c_.step < 0 ? depth : d_.env.simplify(d_.axes[static_cast<size_t>(c_.step)].extent * whole);
  V begin = sizes_.constant(0), end = sizes_.number(all);
  if (contraction.groups) end = b_.scalar(ScalarOp::Select, std::array{multiplies_, end, begin});
  if (const auto& range = contraction.range) {
    const V step = sizes_.constant(schedule_.tile.depth),
            first = op(ScalarOp::Max, begin, scalars_.value(range->begin));
    begin = op(ScalarOp::Mul, op(ScalarOp::Div, first, step), step); // where accesses are aligned
    end = op(ScalarOp::Min, end, scalars_.value(range->end));
  }
  if (segment_ >= 0) {
    const int64_t steps = schedule_.tile.depth;
    const V length = sizes_.number(d_.env.simplify(ceildiv(all, steps * schedule_.cooperation.split_k) * steps));
    begin = op(ScalarOp::Mul, segment_, length);
    end = op(ScalarOp::Min, end, op(ScalarOp::Add, begin, length));
  }
  const V none = b_.broadcast(zero_of(node(contraction.fold).dtype), {sides_[0].lanes, sides_[1].lanes});
  const Values sums = b_.for_loop(
      begin, end, sizes_.constant(schedule_.tile.depth), Values(contraction.parts() > 1 ? 2 : 1, none),
      [&](V index, std::span<const V> carried) -> Values {
        V base = index;
        if (c_.step >= 0) {
          sizes_.bind(d_.axes[static_cast<size_t>(c_.step)].var, op(ScalarOp::Div, index, of_step));
          base = op(ScalarOp::Mod, index, of_step);
        }
        Values x, y;
        for (const ScalarId part : a) x.push_back(factor(part, true, contraction.dtype, base));
        for (const ScalarId part : b) y.push_back(factor(part, false, contraction.dtype, base));
        return add_products(x, y, contraction.promoted() ? none : -1, carried);
      },
      schedule_.traversal.num_stages);
  if (segment_ < 0) return finish(contraction.fold, total(sums));
  b_.store(partials_, partial_offsets(segment_), total(sums));
  const V last = b_.arrive(counters_, tile_, segment_, sizes_.constant(schedule_.cooperation.split_k));
  b_.if_else(
      last,
      [&]() -> Values {
        memo_.scoped([&] { finish(contraction.fold, sum_of_segments(node(contraction.fold).dtype)); });
        return {};
      },
      [] { return Values(); });
}

} // namespace tessera::block
