#include "codegen/schedule/sizes.h"
#include <array>

namespace tessera {

void SizeEmitter::bind_tile(const SymExpr& axis, tile::ValueId base, int lanes) {
  tile_axis_ = axis;
  lanes_ = lanes;
  bind(lane_base_, base);
}

bool SizeEmitter::varies(const SymExpr& e) const { return lanes_ > 0 && !e.is_const() && e.contains(tile_axis_); }
bool SizeEmitter::has_axis(const SymExpr& e) const {
  if (e.is_const()) return false;
  for (const SymExpr& s : e.symbols())
    if (bound_.contains(s.symbol_id()) || (lanes_ > 0 && s == tile_axis_)) return true;
  return false;
}

tile::ValueId SizeEmitter::op(ScalarOp o, tile::ValueId x, tile::ValueId y) {
  auto cx = constant_of(x), cy = constant_of(y);
  if (o == ScalarOp::Add && cx == 0) return y;
  if (o == ScalarOp::Add && cy == 0) return x;
  if (o == ScalarOp::Sub && cy == 0) return x;
  if (o == ScalarOp::Mul && cx == 1) return y;
  if (o == ScalarOp::Mul && cy == 1) return x;
  return b_.scalar(o, std::array{x, y});
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
  if (!varies(e)) return SymExpr(0);
  auto linear = e.linear_in(tile_axis_);
  return linear ? std::optional(linear->first) : std::nullopt;
}

tile::ValueId SizeEmitter::number(const SymExpr& e) {
  if (!has_axis(e)) return parameter(e);
  if (e.is_symbol() && !varies(e)) return bound_.at(e.symbol_id());
  if (varies(e)) {
    if (auto linear = e.linear_in(tile_axis_)) {
      tile::ValueId start = number(e.substitute({{tile_axis_.symbol_id(), lane_base_}}));
      return op(ScalarOp::Add, op(ScalarOp::Mul, b_.range(lanes_), number(linear->first)), start);
    }
  }
  return generic(e);
}

tile::ValueId SizeEmitter::generic(const SymExpr& e) {
  auto args = e.args();
  switch (e.op()) {
  case SymOp::Add:
  case SymOp::Mul: {
    // What has no axis becomes one parameter; scalars are gathered before tiles.
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
    for (bool tiles : {false, true})
      for (const SymExpr& a : moving)
        if (varies(a) == tiles) sum = op(o, number(a), sum);
    return sum;
  }
  case SymOp::FloorDiv: {
    tile::ValueId x = number(args[0]), y = number(args[1]);
    if (d_.env.range(args[0].substitute({{lane_base_.symbol_id(), tile_axis_}})).lo >= 0 &&
        d_.env.range(args[1]).lo >= 0)
      return op(ScalarOp::Div, x, y);
    return op(ScalarOp::Div, op(ScalarOp::Sub, x, op(ScalarOp::Mod, x, y)), y); // Div truncates: make it exact first
  }
  case SymOp::Mod: return op(ScalarOp::Mod, number(args[0]), number(args[1]));
  case SymOp::Min:
  case SymOp::Max: {
    tile::ValueId x = number(args[0]);
    for (size_t i = 1; i < args.size(); ++i)
      x = op(e.op() == SymOp::Min ? ScalarOp::Min : ScalarOp::Max, x, number(args[i]));
    return x;
  }
  case SymOp::Select:
    return b_.scalar(ScalarOp::Select, std::array{condition(args[0]), number(args[1]), number(args[2])});
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
    // Brought to "tile axis < scalar" where possible: that is a prefix of the lanes.
    auto d = (r - l).linear_in(tile_axis_);
    if (d && d->first.is_const(-1)) return b_.scalar(o, std::array{number(tile_axis_), number(d->second)});
    if (d && d->first.is_const(1)) { // t > -k  is  not t <= -k
      ScalarOp inverse = o == ScalarOp::Lt ? ScalarOp::Le : ScalarOp::Lt;
      return b_.scalar(ScalarOp::Not,
                       std::array{b_.scalar(inverse, std::array{number(tile_axis_), number(-d->second)})});
    }
  }
  return b_.scalar(o, std::array{number(l), number(r)});
}

tile::ValueId SizeEmitter::condition(const SymExpr& e) {
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
      x = b_.scalar(e.op() == SymOp::And ? ScalarOp::And : ScalarOp::Or, std::array{x, condition(e.args()[i])});
    return x;
  }
  default: return b_.scalar(ScalarOp::Ne, std::array{number(e), constant(0)});
  }
}

} // namespace tessera
