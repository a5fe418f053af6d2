#include "codegen/schedule/lower/sizes.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>

namespace tessera {

void SizeEmitter::bind_tile(const SymExpr& axis, tile::ValueId base, int lanes, int dim, int rank, int steps, int run) {
  TileAxis t{axis, {}, lanes, dim, rank, steps, run};
  SymExpr symbol = dim + t.dims() == rank ? lane_base_ : row_base_;
  t.base = symbol;
  auto at = tiles_.begin();
  while (at != tiles_.end() && at->dim < dim) ++at;
  if (at != tiles_.end() && at->dim == dim)
    *at = t;
  else
    tiles_.insert(at, t);
  bind(symbol, base);
}

void SizeEmitter::bind_box(std::span<const BoxAxis> axes, int dim, int rank) {
  std::erase_if(tiles_, [&](const TileAxis& t) { return t.dim == dim; });
  const auto at = std::find_if(tiles_.begin(), tiles_.end(), [&](const TileAxis& t) { return t.dim > dim; });
  int whole = 1;
  for (const BoxAxis& a : axes) whole *= a.lanes;
  std::vector<TileAxis> parts;
  int below = whole;
  for (const BoxAxis& a : axes) {
    below /= a.lanes;
    parts.push_back({a.axis, SymExpr::symbol("tile_" + a.axis.symbol_name()), a.lanes, dim, rank, 1, 1, below, whole});
    bind(parts.back().base, a.base);
  }
  tiles_.insert(at, parts.begin(), parts.end());
}

int SizeEmitter::varies(const SymExpr& e) const {
  int dims = 0;
  if (e.is_const()) return dims;
  for (const TileAxis& t : tiles_)
    if (e.contains(t.axis)) dims |= ((1 << t.dims()) - 1) << t.dim;
  return dims;
}
bool SizeEmitter::has_axis(const SymExpr& e) const {
  if (e.is_const()) return false;
  if (varies(e)) return true;
  for (const SymExpr& s : e.symbols())
    if (bound_.contains(s.symbol_id())) return true;
  return false;
}
tile::ValueId SizeEmitter::positions(int n, int dim, int rank) {
  tile::ValueId r = b_.range(n);
  for (int i = 0; i < rank; ++i)
    if (i != dim) r = b_.expand_dims(r, i);
  return r;
}

// The lane along a box, and from it the position along one of its axes.
tile::ValueId SizeEmitter::box_positions(const TileAxis& t) {
  tile::ValueId lane = positions(t.whole, t.dim, t.rank);
  if (t.below > 1) lane = pointwise(b_, ScalarOp::Div, std::array{lane, constant(t.below)});
  if (t.below * t.lanes < t.whole) lane = pointwise(b_, ScalarOp::Mod, std::array{lane, constant(t.lanes)});
  return lane;
}

tile::ValueId SizeEmitter::op(ScalarOp o, tile::ValueId x, tile::ValueId y) {
  auto cx = constant_of(x), cy = constant_of(y);
  if (o == ScalarOp::Add && cx == 0) return y;
  if (o == ScalarOp::Add && cy == 0) return x;
  if (o == ScalarOp::Sub && cy == 0) return x;
  if (o == ScalarOp::Mul && (cx == 1 || cy == 0)) return y;
  if (o == ScalarOp::Mul && cx == 0) return x;
  if (o == ScalarOp::Mul && cy == 1) return x;
  return pointwise(b_, o, std::array{x, y});
}
std::optional<int64_t> SizeEmitter::constant_of(tile::ValueId v) const {
  auto it = constants_.find(v);
  return it == constants_.end() ? std::nullopt : std::optional(it->second);
}

tile::ValueId SizeEmitter::constant(int64_t c) {
  tile::ValueId v = b_.const_i(DType::I64, c);
  constants_[v] = c;
  return v;
}

tile::ValueId SizeEmitter::parameter(const SymExpr& e) {
  SymExpr s = d_.env.simplify(e);
  if (auto c = s.as_const()) return constant(*c);
  auto [it, fresh] = parameters_.emplace(s, -1);
  if (fresh) {
    it->second = b_.param("n" + std::to_string(sizes_.size()), {tile::Type::Kind::Data, DType::I64, {}});
    sizes_.push_back(s);
  }
  return it->second;
}

std::optional<SymExpr> SizeEmitter::tile_stride(const SymExpr& e) const {
  if (tiles_.empty() || !e.contains(tiles_.back().axis)) return SymExpr(0);
  auto linear = e.linear_in(tiles_.back().axis);
  return linear ? std::optional(linear->first) : std::nullopt;
}

SymExpr SizeEmitter::shifted(const SymExpr& e) const {
  if (!shift_ || !e.contains(shift_->axis)) return e;
  return e.substitute({{shift_->axis.symbol_id(), shift_->place - shift_->by}});
}

tile::ValueId SizeEmitter::number(const SymExpr& given) {
  const SymExpr e = shifted(given);
  if (!has_axis(e)) return parameter(e);
  if (e.is_symbol() && !varies(e)) return bound_.at(e.symbol_id());
  if (keeps_positions_ && !e.is_symbol())
    if (auto sum = of_positions(e)) return *sum;
  for (size_t i = tiles_.size(); i-- > 0;) { // the last dimension is added last
    const TileAxis t = tiles_[i];
    if (!e.contains(t.axis)) continue;
    if (auto linear = e.linear_in(t.axis)) {
      tile::ValueId start = run_starts(e, linear->first, t);
      if (t.run == 1) return start;
      return op(ScalarOp::Add, op(ScalarOp::Mul, positions(t.run, t.dim + t.dims() - 1, t.rank), number(linear->first)),
                start);
    }
  }
  return generic(e);
}

// The scalar first, then dimension after dimension; nothing if the expression is not affine in all axes of the tile.
std::optional<tile::ValueId> SizeEmitter::of_positions(const SymExpr& e) {
  if (!varies(e)) return std::nullopt;
  std::vector<std::pair<SymExpr, SymExpr>> terms; // axis, stride
  SymExpr rest = e;
  for (const TileAxis& t : tiles_) {
    if (!rest.contains(t.axis)) continue;
    auto linear = rest.linear_in(t.axis);
    if (!linear || varies(linear->first)) return std::nullopt;
    terms.emplace_back(t.axis, linear->first);
    rest = linear->second;
  }
  if (varies(rest)) return std::nullopt;
  tile::ValueId sum = number(rest);
  for (const auto& [axis, stride] : terms)
    sum = op(ScalarOp::Add, op(ScalarOp::Mul, number(axis), number(stride)), sum);
  return sum;
}

// An expression that is affine in t's axis, at the first position of each run.
tile::ValueId SizeEmitter::run_starts(const SymExpr& e, const SymExpr& stride, const TileAxis& t) {
  auto base = constant_of(bound_.at(t.base.symbol_id()));
  SymExpr at = base == 0 ? SymExpr(0) : t.base;
  tile::ValueId start = number(e.substitute({{t.axis.symbol_id(), at}}));
  int dim = t.dim;
  auto along = [&](int n, int apart) {
    tile::ValueId step = number(stride * SymExpr(apart));
    start = op(ScalarOp::Add, op(ScalarOp::Mul, positions(n, dim++, t.rank), step), start);
  };
  if (t.whole > 0) {
    if (t.lanes == 1) return start;
    return op(ScalarOp::Add, op(ScalarOp::Mul, box_positions(t), number(stride)), start);
  }
  if (t.steps > 1) along(t.steps, t.lanes / t.steps);
  along(t.lanes / t.steps / t.run, t.run);
  return start;
}

bool SizeEmitter::is_extent(const SymExpr& e) const {
  SymExpr there = e;
  for (const TileAxis& t : tiles_) there = there.substitute({{t.base.symbol_id(), t.axis}});
  if (shift_) there = there.substitute({{shift_->place.symbol_id(), shift_->axis + shift_->by}});
  return d_.env.range(there).lo >= 0;
}

// floordiv(x, n) and mod(x, n) along runs that are not longer than n: there is at most one multiple of n behind the
// first position of a run, which alone is divided.
std::optional<tile::ValueId> SizeEmitter::divided_runs(const SymExpr& e) {
  const SymExpr &x = e.args()[0], &n = e.args()[1];
  for (const TileAxis& t : tiles_) {
    if (t.run == 1 || shift_ || varies(n) || d_.env.range(n).lo < t.run || !is_extent(x)) continue;
    auto linear = x.linear_in(t.axis);
    if (!linear || !linear->first.is_const(1)) continue;
    tile::ValueId start = run_starts(x, linear->first, t), by = number(n);
    tile::ValueId behind =
        op(ScalarOp::Add, op(ScalarOp::Mod, start, by), positions(t.run, t.dim + t.dims() - 1, t.rank));
    tile::ValueId next = pointwise(b_, ScalarOp::Ge, std::array{behind, by});
    if (e.op() == SymOp::FloorDiv) return op(ScalarOp::Add, b_.cast(next, DType::I64), op(ScalarOp::Div, start, by));
    return pointwise(b_, ScalarOp::Select, std::array{next, op(ScalarOp::Sub, behind, by), behind});
  }
  return std::nullopt;
}

tile::ValueId SizeEmitter::generic(const SymExpr& e) {
  auto args = e.args();
  switch (e.op()) {
  case SymOp::Add:
  case SymOp::Mul: {
    // Terms without an axis become one parameter; scalars are added before tiles.
    ScalarOp o = e.op() == SymOp::Add ? ScalarOp::Add : ScalarOp::Mul;
    SymExpr fixed = e.op() == SymOp::Add ? 0 : 1;
    std::vector<SymExpr> moving;
    for (const SymExpr& a : args) {
      if (has_axis(a))
        moving.push_back(a);
      else
        fixed = o == ScalarOp::Add ? fixed + a : fixed * a;
    }
    tile::ValueId sum = parameter(fixed);
    for (int dims = 0; dims < 32; ++dims)
      for (const SymExpr& a : moving)
        if (varies(a) == dims) sum = op(o, number(a), sum);
    return sum;
  }
  case SymOp::FloorDiv: {
    if (auto by_runs = divided_runs(e)) return *by_runs;
    tile::ValueId x = number(args[0]), y = number(args[1]);
    if (is_extent(args[0]) && d_.env.range(args[1]).lo >= 0) return op(ScalarOp::Div, x, y);
    return op(ScalarOp::Div, op(ScalarOp::Sub, x, op(ScalarOp::Mod, x, y)), y); // Div truncates: make it exact first
  }
  case SymOp::Mod:
    if (auto by_runs = divided_runs(e)) return *by_runs;
    return op(ScalarOp::Mod, number(args[0]), number(args[1]));
  case SymOp::Min:
  case SymOp::Max: {
    tile::ValueId x = number(args[0]);
    for (size_t i = 1; i < args.size(); ++i)
      x = op(e.op() == SymOp::Min ? ScalarOp::Min : ScalarOp::Max, x, number(args[i]));
    return x;
  }
  case SymOp::Select:
    return pointwise(b_, ScalarOp::Select, std::array{condition(args[0]), number(args[1]), number(args[2])});
  case SymOp::Scaled: {
    tile::ValueId wide = b_.cast(number(args[0]), DType::F64);
    tile::ValueId product = pointwise(b_, ScalarOp::Mul, std::array{wide, b_.const_f(DType::F64, e.factor())});
    return b_.cast(b_.scalar(ScalarOp::Floor, std::array{product}), DType::I64);
  }
  default: return b_.cast(condition(e), DType::I64);
  }
}

tile::ValueId SizeEmitter::compare(const SymExpr& e) {
  const SymExpr &l = e.args()[0], &r = e.args()[1];
  ScalarOp o = e.op() == SymOp::Eq   ? ScalarOp::Eq
               : e.op() == SymOp::Ne ? ScalarOp::Ne
               : e.op() == SymOp::Lt ? ScalarOp::Lt
                                     : ScalarOp::Le;
  if (varies(e) && (o == ScalarOp::Lt || o == ScalarOp::Le)) {
    // Rewritten to "tile axis < scalar" if possible: that is a prefix of the lanes. With two tile axes the last one is
    // isolated.
    SymExpr axis;
    for (const TileAxis& t : tiles_)
      if (e.contains(t.axis)) axis = t.axis;
    auto d = (r - l).linear_in(axis);
    if (d && d->first.is_const(-1)) return pointwise(b_, o, std::array{number(axis), number(d->second)});
    if (d && d->first.is_const(1)) { // t > -k  is  not t <= -k
      ScalarOp inverse = o == ScalarOp::Lt ? ScalarOp::Le : ScalarOp::Lt;
      return b_.scalar(ScalarOp::Not, std::array{pointwise(b_, inverse, std::array{number(axis), number(-d->second)})});
    }
  }
  return pointwise(b_, o, std::array{number(l), number(r)});
}

tile::ValueId SizeEmitter::condition(const SymExpr& given) {
  const SymExpr e = shifted(given);
  switch (e.op()) {
  case SymOp::Const: return b_.const_i(DType::Bool, e.const_value() != 0);
  case SymOp::Eq:
  case SymOp::Ne:
  case SymOp::Lt:
  case SymOp::Le: return compare(e);
  case SymOp::Not: return b_.scalar(ScalarOp::Not, std::array{condition(e.args()[0])});
  case SymOp::And:
  case SymOp::Or: {
    tile::ValueId x = condition(e.args()[0]);
    for (size_t i = 1; i < e.args().size(); ++i)
      x = pointwise(b_, e.op() == SymOp::And ? ScalarOp::And : ScalarOp::Or, std::array{x, condition(e.args()[i])});
    return x;
  }
  default: return pointwise(b_, ScalarOp::Ne, std::array{number(e), constant(0)});
  }
}

} // namespace tessera
