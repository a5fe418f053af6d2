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
  return walked ? d_.env.divisor(extent) % s.lanes == 0 : extent.is_const(s.lanes);
}

// Places a side of the tile at `base`.
void Placement::place(Side& s, V base, bool masks) {
  const Axis& a = axis(s);
  s.mask = -1;
  s.base = base;
  if (s.lanes == 1) return sizes_.bind(a.var, base);
  if (shift_.is_shifted(s)) {
    sizes_.bind_tile(shift_.place(), base, s.lanes, s.dim, static_cast<int>(full_shape().size()), s.steps, s.run);
    if (masks) shift_.mask(s);
    return;
  }
  sizes_.bind_tile(a.var, base, s.lanes, s.dim, static_cast<int>(full_shape().size()), s.steps, s.run);
  if (masks && !always_whole(s))
    s.mask = b_.scalar(ScalarOp::Lt, std::array{sizes_.number(a.var), sizes_.number(a.extent)});
}

} // namespace tessera::block
