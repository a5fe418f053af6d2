// The scalar DAG as tile operations: where a value is emitted, loads and stores with their masks, values kept in
// scratch.
#include "codegen/schedule/lower/values.h"
#include "codegen/schedule/lower/shapes.h"
#include <algorithm>
#include <array>

namespace tessera::loops {

Scalars::Scalars(Context& context)
    : Part(context), DagValues(nest_.dag, d_, memo_), scratch_(d_.live.size(), -1), sites_(d_.live.size(), -1),
      reported_(d_.live.size(), -2) {}

void Scalars::reserve_kept() {
  find_homes();
  for (size_t i = 0; i < stages_.kept.size(); ++i) {
    if (!stages_.kept[i] || home_[i] >= 0) continue;
    DType dtype = node(static_cast<ScalarId>(i)).dtype;
    SymExpr count = d_.row_count() * (schedule_.kind == ScheduleKind::ColumnLoop ? c_.wide : 1);
    scratch_[i] = b_.scratch(dtype, sizes_.number(count));
    out_.scratch_bytes += floordiv(count * (info(dtype).bits / 8) + 63, 64) * 64;
  }
  out_.scratch_bytes = d_.env.simplify(out_.scratch_bytes);
}

// Where kept values lie: in an output that they go to themselves, or one that the last round writes, and in which
// memory is fetched while they are computed instead of while they are stored; else in scratch.
void Scalars::find_homes() {
  home_.assign(d_.live.size(), -1);
  if (!schedule_.residency.cache_in_output) return;
  std::vector<char> taken(d_.stores.size());
  auto fits = [&](ScalarId id, size_t i) {
    const Access& a = d_.stores[i];
    bool own = nest_.stores[i].scalar == id;
    auto along = a.offset.linear_in(tile_axis().var);
    if (taken[i] || graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype != node(id).dtype) return false;
    if ((d_.axes_in(a.offset) & d_.row_mask) != d_.row_mask || !a.terms.empty() || !along || !along->first.is_const(1))
      return false;
    for (size_t other = 0; other < d_.stores.size(); ++other)
      if (other != i && d_.stores[other].buffer == a.buffer) return false;
    for (size_t n = 0; n < d_.live.size(); ++n)
      if (d_.live[n] && node(static_cast<ScalarId>(n)).op == ScalarOp::Load && d_.loads[n].buffer == a.buffer)
        return false;
    return own || d_.stage[static_cast<size_t>(nest_.stores[i].scalar)] + 1 == static_cast<int>(stages_.stages.size());
  };
  for (bool own : {true, false})
    for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
      auto k = static_cast<size_t>(id);
      for (size_t i = 0; k < stages_.kept.size() && stages_.kept[k] && home_[k] < 0 && i < d_.stores.size(); ++i)
        if ((nest_.stores[i].scalar == id) == own && fits(id, i)) {
          home_[k] = static_cast<int>(i);
          taken[i] = 1;
        }
    }
}

void Scalars::hoist(uint64_t axes) {
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    size_t i = static_cast<size_t>(id);
    if (!d_.live[i]) continue;
    ScalarOp o = node(id).op;
    if (divides_by_row_scalar(id)) {
      size_t by = static_cast<size_t>(node(id).args[1]), slot = d_.live.size() + by;
      if (memo_[by] >= 0 && memo_[slot] < 0)
        memo_.remember(slot, b_.scalar(ScalarOp::Reciprocal, std::array{memo_[by]}));
    }
    if (memo_[i] >= 0 || (d_.deps[i] & ~axes) || d_.stage[i] > c_.known || o == ScalarOp::Const || o == ScalarOp::Index)
      continue;
    if (o == ScalarOp::Reduce) continue; // known from its round on
    if (!need_is_known(d_, c_.needs, id, axes, c_.known)) continue;
    value(id);
  }
}

V Scalars::compute(ScalarId id) {
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
bool Scalars::divides_by_row_scalar(ScalarId id) const {
  return !c_.exact_division && tessera::divides_by_row_scalar(nest_, d_, c_.needs, id);
}
V Scalars::divide(ScalarId id) {
  V x = value(node(id).args[0]), s = value(node(id).args[1]);
  size_t slot = d_.live.size() + static_cast<size_t>(node(id).args[1]);
  if (memo_[slot] < 0) memo_.remember(slot, b_.scalar(ScalarOp::Reciprocal, std::array{s}));
  return b_.scalar(ScalarOp::Mul, std::array{x, memo_[slot]});
}

V Scalars::row_has_points(ScalarId id) {
  if (!c_.row_may_be_empty || c_.round >= 0 || d_.row_varying(id) || c_.needs.outside[static_cast<size_t>(id)])
    return -1;
  return b_.scalar(ScalarOp::Lt, std::array{sizes_.constant(0), sizes_.number(d_.row_count())});
}
V Scalars::both(V a, V b) {
  if (a < 0) return b;
  if (b < 0) return a;
  return b_.scalar(ScalarOp::And, std::array{a, b});
}

V Scalars::offset_of(const Access& a) {
  V offset = sizes_.number(a.offset);
  for (const auto& [term, stride] : a.terms)
    offset = op(ScalarOp::Add, offset, op(ScalarOp::Mul, value(term), sizes_.number(stride)));
  return offset;
}

V Scalars::load(ScalarId id) {
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
  if (c_.mask >= 0 && (is_tile(offset) || (mask >= 0 && is_tile(mask)))) mask = both(c_.mask, mask);
  if (mask >= 0 && is_tile(mask)) offset = splat(offset, sizes_.lanes());
  V v = b_.load(c_.pointers[static_cast<size_t>(a.buffer)], offset, mask);
  auto stride = sizes_.tile_stride(a.offset);
  bool moving = std::any_of(a.terms.begin(), a.terms.end(), [&](const auto& t) { return is_tile(value(t.first)); });
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint =
      is_tile(offset) && stride && stride->is_const(1) && !moving && !c_.in_square;
  return b_.cast(v, n.dtype);
}

int Scalars::site(ScalarId id) {
  int& s = sites_[static_cast<size_t>(id)];
  if (s >= 0) return s;
  s = static_cast<int>(out_.report_sites.size());
  out_.report_sites.push_back(bounds_text(graph_, nest_, id));
  return s;
}

V Scalars::check_bounds(ScalarId id) {
  const ScalarNode& n = node(id);
  V i = value(n.args[0]), extent = value(n.args[1]), zero = sizes_.constant(0);
  V bad = b_.scalar(ScalarOp::Or, std::array{b_.scalar(ScalarOp::Lt, std::array{i, zero}),
                                             b_.scalar(ScalarOp::Ge, std::array{i, extent})});
  int& round = reported_[static_cast<size_t>(id)];
  if (round == -2 || round == c_.round) { // a later round that computes it again need not tell again
    V where = -1;
    const auto& under = c_.needs.predicates[static_cast<size_t>(id)];
    bool always = c_.needs.always[static_cast<size_t>(id)] ||
                  std::any_of(under.begin(), under.end(), [&](ScalarId p) { return depends_on(nest_, p, id); });
    bool all_known = true;
    if (!always)
      for (ScalarId p : under) {
        if (d_.stage[static_cast<size_t>(p)] > c_.known) { // a later round tells
          all_known = false;
          continue;
        }
        where = where < 0 ? value(p) : b_.scalar(ScalarOp::Or, std::array{where, value(p)});
      }
    if (all_known) round = c_.round;
    if (always || where >= 0) {
      where = both(where, row_has_points(id));
      if (c_.mask >= 0 && (is_tile(bad) || (where >= 0 && is_tile(where)))) where = both(c_.mask, where);
      b_.report_index(both(bad, where), site(id));
    }
  }
  return b_.scalar(ScalarOp::Select, std::array{bad, zero, i});
}

// Kept values lie in row order with the tile axis last; where the tile runs across rows, a tile per row point.
V Scalars::scratch_offset() {
  SymExpr at = 0;
  for (size_t i : c_.row_axes) at = at * axis(i).extent + axis(i).var;
  if (is_row_loop()) return sizes_.number(at);
  return op(ScalarOp::Add, b_.range(sizes_.lanes()), op(ScalarOp::Mul, sizes_.number(at), sizes_.constant(c_.wide)));
}
V Scalars::kept(ScalarId id) {
  if (int home = home_[static_cast<size_t>(id)]; home >= 0) {
    const Access& a = d_.stores[static_cast<size_t>(home)];
    V v = b_.load(c_.pointers[static_cast<size_t>(a.buffer)], splat(offset_of(a), sizes_.lanes()), c_.mask);
    b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint = true;
    return v;
  }
  bool row = is_row_loop();
  V v = b_.load(scratch_[static_cast<size_t>(id)], scratch_offset(), row ? c_.mask : -1);
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint = true;
  return v;
}
void Scalars::keep(ScalarId id) {
  if (int home = home_[static_cast<size_t>(id)]; home >= 0) {
    if (nest_.stores[static_cast<size_t>(home)].scalar != id) store(static_cast<size_t>(home), value(id));
    return;
  }
  bool row = is_row_loop();
  b_.store(scratch_[static_cast<size_t>(id)], scratch_offset(), value(id), row ? c_.mask : -1);
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint = true;
}

void Scalars::store(size_t index, V v) {
  const Access& a = d_.stores[index];
  DType dtype = graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype;
  v = in_full(b_.cast(v, dtype));
  V offset = in_full(offset_of(a));
  if (is_tile(v)) offset = splat(offset, sizes_.lanes());
  b_.store(c_.pointers[static_cast<size_t>(a.buffer)], offset, v, is_tile(offset) ? c_.mask : -1);
  auto stride = sizes_.tile_stride(a.offset);
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint =
      is_tile(offset) && stride && stride->is_const(1) && !c_.in_square;
}

// All values before the first store: an output may lie on top of an input that is read at the same place.
void Scalars::store_all() {
  Values values;
  for (const Store& s : nest_.stores) values.push_back(value(s.scalar));
  for (size_t i = 0; i < values.size(); ++i) store(i, values[i]);
}

void Scalars::store_rows() {
  Values values;
  for (size_t i : stages_.row_stores) values.push_back(value(nest_.stores[i].scalar));
  for (size_t i = 0; i < values.size(); ++i) store(stages_.row_stores[i], values[i]);
}

} // namespace tessera::loops
