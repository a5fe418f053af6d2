// The scalar DAG as operations on tiles of the shape that each value's dependences ask for.
#include "codegen/schedule/lower/block_values.h"
#include "codegen/schedule/lower/shapes.h"
#include <algorithm>
#include <array>

namespace tessera::block {

Scalars::Scalars(Context& context, Shift& shift, Unrolled& unrolled, StagedOperands& staged)
    : Part(context), DagValues(nest_.dag, d_, memo_), shift_(shift), unrolled_(unrolled), staged_(staged),
      sites_(d_.live.size(), -1), reported_(d_.live.size(), -2) {}

// Computes what depends on these axes only, and on rounds that are over: before a loop opens.
void Scalars::hoist(uint64_t axes) {
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    size_t i = static_cast<size_t>(id);
    if (!d_.live[i]) continue;
    ScalarOp o = node(id).op;
    if (!c_.exact_division && divides_by_row_scalar(nest_, d_, c_.needs, id)) {
      size_t by = static_cast<size_t>(node(id).args[1]), slot = d_.live.size() + by;
      if (memo_[by] >= 0 && memo_[slot] < 0)
        memo_.remember(slot, b_.scalar(ScalarOp::Reciprocal, std::array{memo_[by]}));
    }
    if (memo_[i] >= 0 || (d_.deps[i] & ~axes) || d_.stage[i] > c_.known || o == ScalarOp::Const ||
        o == ScalarOp::Index || o == ScalarOp::Reduce || !need_is_known(d_, c_.needs, id, axes, c_.known))
      continue;
    value(id);
  }
}

// Where the row stands in the tile, loads for what comes after a reduction are issued before it, as far as their
// registers are few: memory is not idle while the block folds.
void Scalars::load_ahead() {
  constexpr int64_t kAheadBytes = 64; // of a thread
  int64_t elements = int64_t{sides_[0].lanes} * sides_[1].lanes / (int64_t{32} * schedule_.tile.warps);
  int64_t bytes = 0;
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    size_t i = static_cast<size_t>(id);
    if (!d_.live[i] || node(id).op != ScalarOp::Load || d_.stage[i] > 0 || !d_.row_varying(id)) continue;
    bytes += std::max<int64_t>(1, elements) *
             (info(graph_.type(d_.buffers[static_cast<size_t>(d_.loads[i].buffer)]).dtype).bits / 8);
    if (bytes > kAheadBytes) return;
    value(id);
  }
}

V Scalars::compute(ScalarId id) {
  const ScalarNode& n = node(id);
  switch (n.op) {
  case ScalarOp::Const: return is_float(n.dtype) ? b_.const_f(n.dtype, n.f) : b_.const_i(n.dtype, n.i);
  case ScalarOp::Index:
    return n.dtype == DType::Bool ? sizes_.condition(unrolled_.here(d_.sym[static_cast<size_t>(id)]))
                                  : sizes_.number(unrolled_.here(d_.sym[static_cast<size_t>(id)]));
  case ScalarOp::Load: return load(id);
  case ScalarOp::CheckBounds: return check_bounds(id);
  case ScalarOp::Reduce:
    TESSERA_CHECK(!schedule_.traversal.loop && !legal_.blocks_per_row, "a reduction is used before its round");
    return reduce(id);
  case ScalarOp::Cast: return b_.cast(value(n.args[0]), n.dtype);
  case ScalarOp::Div:
    if (!c_.exact_division && divides_by_row_scalar(nest_, d_, c_.needs, id)) return divide(id);
    break;
  case ScalarOp::Select: {
    // select(p, f(load if p), f(0)) is f(load if p).
    auto other = value_of_zeros(nest_, n.args[2], [](ScalarId) { return false; });
    auto there = other ? value_of_zeros(nest_, n.args[1],
                                        [&](ScalarId l) { return node(l).masked && node(l).args.back() == n.args[0]; })
                       : std::nullopt;
    if (there && same_value(n.dtype, *there, *other)) return value(n.args[1]);
    break;
  }
  default: break;
  }
  Values args;
  for (ScalarId a : n.args) args.push_back(value(a));
  return pointwise(b_, n.op, args);
}

V Scalars::divide(ScalarId id) {
  V x = value(node(id).args[0]), s = value(node(id).args[1]);
  size_t slot = d_.live.size() + static_cast<size_t>(node(id).args[1]);
  if (memo_[slot] < 0) memo_.remember(slot, b_.scalar(ScalarOp::Reciprocal, std::array{s}));
  return pointwise(b_, ScalarOp::Mul, std::array{x, memo_[slot]});
}

// The mask under which a value that only the row needs may be read ahead of the row: the row has points.
V Scalars::row_has_points(ScalarId id) {
  if (!c_.row_may_be_empty || c_.round >= 0 || d_.row_varying(id) || c_.needs.outside[static_cast<size_t>(id)])
    return -1;
  return sizes_.condition(sym_lt(0, d_.row_count()));
}

V Scalars::offset_of(const Access& a) {
  auto aligned = shift_.aligned_offset(a);
  V offset = sizes_.number(aligned ? *aligned : unrolled_.here(a.offset));
  for (const auto& [term, stride] : a.terms)
    offset =
        sizes_.op(ScalarOp::Add, offset, sizes_.op(ScalarOp::Mul, value(term), sizes_.number(unrolled_.here(stride))));
  return offset;
}

V Scalars::stored_value(ScalarId id) {
  if (V v = memo_.loaded[static_cast<size_t>(id)]; v >= 0) return memo_.raw[static_cast<size_t>(id)] = v;
  if (const StagedOperands::Operand* s = staged_.find(id))
    return memo_.raw[static_cast<size_t>(id)] = staged_.value(*s);
  auto tap = unrolled_.tap_load(id);
  if (tap && (*tap)->value >= 0) return (*tap)->value;
  const Access& a = d_.loads[static_cast<size_t>(id)];
  V offset = offset_of(a), mask = row_has_points(id);
  for (const auto& [term, stride] : a.terms) {
    // A dimension that may be empty has no element for a bad index to fall back to.
    if (node(term).op != ScalarOp::CheckBounds) continue;
    ScalarId extent = node(term).args[1];
    auto sym = nest_.dag.as_sym(extent);
    if (!sym || d_.env.range(*sym).lo < 1)
      mask = both(mask, pointwise(b_, ScalarOp::Lt, std::array{sizes_.constant(0), value(extent)}));
  }
  if (a.predicate >= 0) mask = both(mask, value(a.predicate));
  std::vector<int> shape =
      mask < 0 ? b_.kernel().type(offset).shape : common_shape(b_.kernel(), std::array{offset, mask});
  mask = both(inside(shape), mask);
  mask = both(c_.guard, mask);
  if (mask >= 0 && is_tile(mask)) mask = splat(mask, shape);
  shift_.tell_end(a);
  V v = b_.load(c_.pointers[static_cast<size_t>(a.buffer)], splat(offset, shape), mask, -1, caching(a));
  memo_.raw[static_cast<size_t>(id)] = v;
  if (tap) (*tap)->value = v;
  return v;
}

int Scalars::site(ScalarId id) {
  int& s = sites_[static_cast<size_t>(id)];
  if (s < 0) {
    s = static_cast<int>(out_.report_sites.size());
    out_.report_sites.push_back(bounds_text(graph_, nest_, id));
  }
  return s;
}

V Scalars::check_bounds(ScalarId id) {
  const ScalarNode& n = node(id);
  V i = value(n.args[0]), extent = value(n.args[1]), zero = sizes_.constant(0);
  V bad = pointwise(
      b_, ScalarOp::Or,
      std::array{pointwise(b_, ScalarOp::Lt, std::array{i, zero}), pointwise(b_, ScalarOp::Ge, std::array{i, extent})});
  int& round = reported_[static_cast<size_t>(id)];
  if (round == -2 || round == c_.round) { // a later round that computes it again need not tell again
    V where = -1;
    const auto& under = c_.needs.predicates[static_cast<size_t>(id)];
    bool always = c_.needs.always[static_cast<size_t>(id)] ||
                  std::any_of(under.begin(), under.end(), [&](ScalarId p) { return depends_on(nest_, p, id); });
    bool all_known = true;
    if (!always)
      for (ScalarId p : under) {
        if ((schedule_.traversal.loop || legal_.blocks_per_row) &&
            d_.stage[static_cast<size_t>(p)] > c_.known) { // a later round tells
          all_known = false;
          continue;
        }
        where = where < 0 ? value(p) : pointwise(b_, ScalarOp::Or, std::array{where, value(p)});
      }
    if (all_known) round = c_.round;
    if (always || where >= 0) {
      where = both(where, row_has_points(id));
      std::vector<int> shape =
          where < 0 ? b_.kernel().type(bad).shape : common_shape(b_.kernel(), std::array{bad, where});
      where = both(inside(shape), where);
      b_.report_index(both(bad, where), site(id));
    }
  }
  return pointwise(b_, ScalarOp::Select, std::array{bad, zero, i});
}

void Scalars::store(size_t index, V v) {
  const Access& a = d_.stores[index];
  v = b_.cast(v, graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype);
  V offset = offset_of(a);
  std::vector<int> shape = common_shape(b_.kernel(), std::array{offset, v});
  V mask = inside(shape);
  if (unrolled_.window()) mask = both(mask, c_.guard); // a result that exists
  if (mask >= 0 && is_tile(mask)) mask = splat(mask, shape);
  b_.store(c_.pointers[static_cast<size_t>(a.buffer)], splat(offset, shape), is_tile(v) ? splat(v, shape) : v, mask);
}

// What the tile reads in its own order is on its way before the block waits, as far as its registers are few.
void Scalars::load_beside() {
  constexpr int64_t kBesideBytes = 128; // of a thread
  const int64_t elements = int64_t{sides_[0].lanes} * sides_[1].lanes / (int64_t{32} * schedule_.tile.warps);
  const uint64_t all = (uint64_t{1} << d_.axes.size()) - 1;
  int64_t bytes = 0;
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (!d_.live[i] || node(id).op != ScalarOp::Load || staged_.find(id)) continue;
    const Access& a = d_.loads[i];
    if (!a.terms.empty() || a.predicate >= 0 || d_.access_deps(a) != all) continue;
    bytes +=
        std::max<int64_t>(1, elements) * (info(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8);
    if (bytes > kBesideBytes) return;
    value(id);
  }
}

void Scalars::store_rows() {
  Values values;
  for (size_t i : stages_.row_stores) values.push_back(value(nest_.stores[i].scalar));
  for (size_t i = 0; i < values.size(); ++i) store(stages_.row_stores[i], values[i]);
}

} // namespace tessera::block
