#include "codegen/schedule/lower/block_place.h"
#include <array>

namespace tessera::block {

// i1: all elements of the block exist, along sides with several blocks; for staged operands one more column.
V Placement::whole_block() {
  V whole = -1;
  for (const Side& s : sides_) {
    const bool more = schedule_.access.staged && &s == &sides_[1];
    if (s.axis < 0 || stands_alone(s) || (always_whole(s) && !more)) continue;
    V begin = sizes_.op(ScalarOp::Mul, s.blocks, sizes_.constant(s.lanes));
    V end = sizes_.op(ScalarOp::Add, begin, sizes_.constant(s.lanes));
    whole = both(whole, b_.scalar(more ? ScalarOp::Lt : ScalarOp::Le, std::array{end, sizes_.number(axis(s).extent)}));
    if (shift_.is_shifted(s))
      whole =
          both(whole, b_.scalar(ScalarOp::Ge, std::array{begin, sizes_.constant(schedule_.access.alignment_peel - 1)}));
  }
  return whole;
}

// A side with one tile is masked in all branches.
bool Placement::stands_alone(const Side& s) const {
  return d_.env.simplify(ceildiv(axis(s).extent, s.lanes)).is_const(1);
}

bool Placement::always_whole(const Side& s) const {
  SymExpr extent = d_.env.simplify(axis(s).extent);
  const bool folded = fold_ >= 0 && &s == &sides_[static_cast<size_t>(fold_)];
  if (folded && schedule_.traversal.num_stages > 1 && d_.env.range(extent).lo < 1)
    return false; // the last tile always exists
  if (shift_.is_shifted(s)) return false;
  bool walked = schedule_.traversal.loop || legal_.blocks_per_row || !folded;
  return walked ? d_.env.divisor(extent) % (int64_t{s.lanes} * s.cluster) == 0 : extent.is_const(s.lanes);
}

// Places a side of the tile at `base`.
void Placement::place(Side& s, V base, bool masks) {
  const Axis& a = axis(s);
  s.mask = -1;
  s.base = base;
  if (!s.box.empty()) return place_box(s, masks);
  if (s.lanes == 1) return sizes_.bind(a.var, base);
  if (shift_.is_shifted(s)) {
    sizes_.bind_tile(shift_.place(), base, s.lanes, s.dim, static_cast<int>(full_shape().size()), s.steps, s.run);
    if (masks) shift_.mask(s);
    return;
  }
  sizes_.bind_tile(a.var, base, s.lanes, s.dim, static_cast<int>(full_shape().size()), s.steps, s.run);
  if (masks && s.end >= 0)
    s.mask = b_.scalar(ScalarOp::Lt, std::array{sizes_.number(a.var), s.end});
  else if (masks && !always_whole(s))
    s.mask = b_.scalar(ScalarOp::Lt, std::array{sizes_.number(a.var), sizes_.number(a.extent)});
}

SymExpr Placement::blocks(const Side& s) const {
  if (s.box.empty()) return d_.env.simplify(ceildiv(axis(s).extent, s.lanes));
  SymExpr count = 1;
  for (const BlockSpace::BoxAxis& a : s.box) count *= ceildiv(d_.axes[static_cast<size_t>(a.axis)].extent, a.lanes);
  return d_.env.simplify(count);
}

void Placement::place_box(Side& s, bool masks) {
  std::vector<SizeEmitter::BoxAxis> placed(s.box.size());
  uint64_t partial = 0; // axes along which a tile may be partly within the extent
  V number = s.blocks;
  const bool beyond =
      d_.env.divisor(blocks(s)) % s.cluster != 0; // a tile may lie behind the last one, of the first axis
  for (size_t i = s.box.size(); i-- > 0;) {
    const Axis& a = d_.axes[static_cast<size_t>(s.box[i].axis)];
    const SymExpr along = d_.env.simplify(ceildiv(a.extent, s.box[i].lanes));
    V at = along.is_const(1) && !(beyond && i == 0) ? sizes_.constant(0) : number;
    if (i > 0 && !along.is_const(1)) {
      const V blocks = sizes_.number(along);
      at = sizes_.op(ScalarOp::Mod, number, blocks);
      number = sizes_.op(ScalarOp::Div, number, blocks);
    }
    placed[i] = {a.var, sizes_.op(ScalarOp::Mul, at, sizes_.constant(s.box[i].lanes)), s.box[i].lanes};
    if (d_.env.divisor(a.extent) % s.box[i].lanes != 0 || (beyond && i == 0)) partial |= uint64_t{1} << s.box[i].axis;
  }
  sizes_.bind_box(placed, s.dim, static_cast<int>(full_shape().size()));
  if (masks) s.mask = bounds(s, partial);
}

V Placement::bounds(const Side& s, uint64_t axes) {
  V mask = -1;
  auto bound = [&](int axis) {
    if (!(axes >> axis & 1)) return;
    const Axis& a = d_.axes[static_cast<size_t>(axis)];
    mask = both(mask, b_.scalar(ScalarOp::Lt, std::array{sizes_.number(a.var), sizes_.number(a.extent)}));
  };
  if (s.box.empty()) bound(s.axis);
  for (const BlockSpace::BoxAxis& a : s.box) bound(a.axis);
  return mask;
}

} // namespace tessera::block
