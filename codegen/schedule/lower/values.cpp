// The scalar DAG as tile operations: where a value is emitted, loads and stores with their masks, values kept in
// scratch.
#include "codegen/schedule/lower/lowering.h"
#include "codegen/schedule/lower/shapes.h"
#include <algorithm>
#include <array>

namespace tessera {

void Lowering::hoist(uint64_t axes) {
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    size_t i = static_cast<size_t>(id);
    if (!d_.live[i]) continue;
    ScalarOp o = node(id).op;
    if (divides_by_row_scalar(id)) {
      size_t by = static_cast<size_t>(node(id).args[1]), slot = d_.live.size() + by;
      if (memo_[by] >= 0 && memo_[slot] < 0) remember(slot, b_.scalar(ScalarOp::Reciprocal, std::array{memo_[by]}));
    }
    if (memo_[i] >= 0 || (d_.deps[i] & ~axes) || d_.stage[i] > known_ || o == ScalarOp::Const || o == ScalarOp::Index)
      continue;
    if (o == ScalarOp::Reduce) continue; // known from its round on
    if (!need_is_known(d_, needs_, id, axes, known_)) continue;
    value(id);
  }
}

// Nodes of a large DAG that `root` needs are computed in order first, so that recursion stays shallow.
void Lowering::prepare(ScalarId root) {
  std::vector<char> needed(static_cast<size_t>(root) + 1);
  needed.back() = 1;
  for (ScalarId id = root; id >= 0; --id) {
    if (!needed[static_cast<size_t>(id)] || is_kept_before(id)) continue;
    for (ScalarId a : node(id).args)
      if (d_.live[static_cast<size_t>(a)] && memo_[static_cast<size_t>(a)] < 0) needed[static_cast<size_t>(a)] = 1;
  }
  for (ScalarId id = 0; id < root; ++id) {
    size_t i = static_cast<size_t>(id);
    if (needed[i] && memo_[i] < 0) remember(i, compute(id));
  }
}

Lowering::V Lowering::value(ScalarId id) {
  size_t i = static_cast<size_t>(id);
  if (memo_[i] >= 0) return memo_[i];
  constexpr int kLarge = 256;
  if (nest_.dag.size() > kLarge && !preparing_) {
    preparing_ = true;
    prepare(id);
    preparing_ = false;
  }
  V v = compute(id);
  remember(i, v);
  return v;
}

Lowering::V Lowering::compute(ScalarId id) {
  const ScalarNode& n = node(id);
  if (is_kept_before(id)) return kept(id);
  switch (n.op) {
  case ScalarOp::Const: return is_float(n.dtype) ? b_.const_f(n.dtype, n.f) : b_.const_i(n.dtype, n.i);
  case ScalarOp::Index:
    return n.dtype == DType::Bool ? sizes_.condition(d_.sym[static_cast<size_t>(id)])
                                  : sizes_.number(d_.sym[static_cast<size_t>(id)]);
  case ScalarOp::Load: return load(id);
  case ScalarOp::CheckBounds: return check_bounds(id);
  case ScalarOp::Reduce: TESSERA_UNREACHABLE("a reduction is used before its round");
  case ScalarOp::Cast: return b_.cast(value(n.args[0]), n.dtype);
  case ScalarOp::Div:
    if (divides_by_row_scalar(id)) return divide(id);
    break;
  default: break;
  }
  Values args;
  for (ScalarId a : n.args) args.push_back(value(a));
  return pointwise(b_, n.op, args);
}

// x / s with s a result of the row's reductions, x varying along the row: softmax, norms. One reciprocal per row
// replaces a division per element; docs/schedules.md says what that costs in accuracy and how to turn it off.
bool Lowering::divides_by_row_scalar(ScalarId id) const {
  return !exact_division_ && tessera::divides_by_row_scalar(nest_, d_, needs_, id);
}
Lowering::V Lowering::divide(ScalarId id) {
  V x = value(node(id).args[0]), s = value(node(id).args[1]);
  size_t slot = d_.live.size() + static_cast<size_t>(node(id).args[1]);
  if (memo_[slot] < 0) remember(slot, b_.scalar(ScalarOp::Reciprocal, std::array{s}));
  return b_.scalar(ScalarOp::Mul, std::array{x, memo_[slot]});
}

Lowering::V Lowering::row_has_points(ScalarId id) {
  if (!row_may_be_empty_ || round_ >= 0 || d_.row_varying(id) || needs_.outside[static_cast<size_t>(id)]) return -1;
  return b_.scalar(ScalarOp::Lt, std::array{sizes_.constant(0), sizes_.number(d_.row_count())});
}
Lowering::V Lowering::both(V a, V b) {
  if (a < 0) return b;
  if (b < 0) return a;
  return b_.scalar(ScalarOp::And, std::array{a, b});
}

Lowering::V Lowering::offset_of(const Access& a) {
  V offset = sizes_.number(a.offset);
  for (const auto& [term, stride] : a.terms)
    offset = op(ScalarOp::Add, offset, op(ScalarOp::Mul, value(term), sizes_.number(stride)));
  return offset;
}

Lowering::V Lowering::load(ScalarId id) {
  const ScalarNode& n = node(id);
  const Access& a = d_.loads[static_cast<size_t>(id)];
  V offset = offset_of(a), mask = row_has_points(id);
  for (const auto& [term, stride] : a.terms) {
    // A dimension that may be empty has no element for a bad index to fall back to.
    if (node(term).op != ScalarOp::CheckBounds) continue;
    ScalarId extent = node(term).args[1];
    auto sym = nest_.dag.as_sym(extent);
    if (!sym || d_.env.range(*sym).lo < 1)
      mask = both(mask, b_.scalar(ScalarOp::Lt, std::array{sizes_.constant(0), value(extent)}));
  }
  if (a.predicate >= 0) mask = both(mask, value(a.predicate));
  if (mask_ >= 0 && (is_tile(offset) || (mask >= 0 && is_tile(mask)))) mask = both(mask_, mask);
  if (mask >= 0 && is_tile(mask)) offset = splat(offset, sizes_.lanes());
  V v = b_.load(pointers_[static_cast<size_t>(a.buffer)], offset, mask);
  auto stride = sizes_.tile_stride(a.offset);
  bool moving = std::any_of(a.terms.begin(), a.terms.end(), [&](const auto& t) { return is_tile(value(t.first)); });
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint =
      is_tile(offset) && stride && stride->is_const(1) && !moving && !in_square_;
  return b_.cast(v, n.dtype);
}

int Lowering::site(ScalarId id) {
  int& s = sites_[static_cast<size_t>(id)];
  if (s >= 0) return s;
  s = static_cast<int>(out_.report_sites.size());
  out_.report_sites.push_back(bounds_text(graph_, nest_, id));
  return s;
}

Lowering::V Lowering::check_bounds(ScalarId id) {
  const ScalarNode& n = node(id);
  V i = value(n.args[0]), extent = value(n.args[1]), zero = sizes_.constant(0);
  V bad = b_.scalar(ScalarOp::Or, std::array{b_.scalar(ScalarOp::Lt, std::array{i, zero}),
                                             b_.scalar(ScalarOp::Ge, std::array{i, extent})});
  int& round = reported_[static_cast<size_t>(id)];
  if (round == -2 || round == round_) { // a later round that computes it again need not tell again
    V where = -1;
    const auto& under = needs_.predicates[static_cast<size_t>(id)];
    bool always = needs_.always[static_cast<size_t>(id)] ||
                  std::any_of(under.begin(), under.end(), [&](ScalarId p) { return depends_on(nest_, p, id); });
    bool all_known = true;
    if (!always)
      for (ScalarId p : under) {
        if (d_.stage[static_cast<size_t>(p)] > known_) { // a later round tells
          all_known = false;
          continue;
        }
        where = where < 0 ? value(p) : b_.scalar(ScalarOp::Or, std::array{where, value(p)});
      }
    if (all_known) round = round_;
    if (always || where >= 0) {
      where = both(where, row_has_points(id));
      if (mask_ >= 0 && (is_tile(bad) || (where >= 0 && is_tile(where)))) where = both(mask_, where);
      b_.report_index(both(bad, where), site(id));
    }
  }
  return b_.scalar(ScalarOp::Select, std::array{bad, zero, i});
}

// Kept values lie in row order with the tile axis last; where the tile runs across rows, a tile per row point.
Lowering::V Lowering::scratch_offset() {
  SymExpr at = 0;
  for (size_t i : row_axes_) at = at * axis(i).extent + axis(i).var;
  if (schedule_.kind == ScheduleKind::RowLoop) return sizes_.number(at);
  return op(ScalarOp::Add, b_.range(sizes_.lanes()), op(ScalarOp::Mul, sizes_.number(at), sizes_.constant(wide_)));
}
Lowering::V Lowering::kept(ScalarId id) {
  if (int home = home_[static_cast<size_t>(id)]; home >= 0) {
    const Access& a = d_.stores[static_cast<size_t>(home)];
    V v = b_.load(pointers_[static_cast<size_t>(a.buffer)], splat(offset_of(a), sizes_.lanes()), mask_);
    b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint = true;
    return v;
  }
  bool row = schedule_.kind == ScheduleKind::RowLoop;
  V v = b_.load(scratch_[static_cast<size_t>(id)], scratch_offset(), row ? mask_ : -1);
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint = true;
  return v;
}
void Lowering::keep(ScalarId id) {
  if (int home = home_[static_cast<size_t>(id)]; home >= 0) {
    if (nest_.stores[static_cast<size_t>(home)].scalar != id) store(static_cast<size_t>(home), value(id));
    return;
  }
  bool row = schedule_.kind == ScheduleKind::RowLoop;
  b_.store(scratch_[static_cast<size_t>(id)], scratch_offset(), value(id), row ? mask_ : -1);
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint = true;
}

void Lowering::store(size_t index, V v) {
  const Access& a = d_.stores[index];
  DType dtype = graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype;
  v = in_full(b_.cast(v, dtype));
  V offset = in_full(offset_of(a));
  if (is_tile(v)) offset = splat(offset, sizes_.lanes());
  b_.store(pointers_[static_cast<size_t>(a.buffer)], offset, v, is_tile(offset) ? mask_ : -1);
  auto stride = sizes_.tile_stride(a.offset);
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint =
      is_tile(offset) && stride && stride->is_const(1) && !in_square_;
}

} // namespace tessera
