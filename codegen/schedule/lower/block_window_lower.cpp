// Lowering of sliding windows: a thread's results and taps are unrolled, with constants in place of the axes. Loads
// whose offset and condition become equal are emitted once.
#include "codegen/schedule/lower/block_window_lower.h"
#include "codegen/schedule/fold.h"
#include "codegen/schedule/lower/block_values.h"
#include "codegen/schedule/shapes.h"
#include <array>

namespace tessera {

Result<WindowAxes> spread_window(const LoopNest& nest, Domain& d, const Schedule& s) {
  auto unfit = [](const std::string& why) { return Diagnostic(ErrorCode::CodegenError, "window: " + why); };
  WindowAxes out;
  int64_t taps = 1, first = 0;
  for (const Axis& a : d.axes) {
    if (a.role != AxisRole::Row) continue;
    auto extent = d.env.simplify(a.extent).as_const();
    if (!extent || *extent < 1) return unfit("the number of taps must be a constant");
    if (first == 0) first = *extent;
    taps *= *extent;
  }
  if (first == 0 || (s.tile.taps != taps && s.tile.taps * first != taps))
    return unfit("`taps` must be all taps, or those of one position of the outermost row axis");
  out.taps = static_cast<int>(taps);
  out.row = static_cast<int>(first == taps ? s.tile.taps : taps / first);
  out.round = SymExpr::symbol("tap_row");
  d.env.set_axis(out.round, taps / s.tile.taps);
  const std::array<std::pair<int, int>, 2> along{
      {{s.placement.window_axis, s.tile.outputs}, {s.placement.outer_window_axis, s.tile.outer_outputs}}};
  for (size_t i = 0; i < along.size(); ++i) {
    const auto [axis, count] = along[i];
    WindowAxes::Outputs& o = out.outputs[i];
    if (count == 1) continue;
    if (count < 1 || axis < 0 || static_cast<size_t>(axis) >= d.axes.size() || axis == s.placement.split_axis ||
        d.axes[static_cast<size_t>(axis)].role == AxisRole::Row || (i == 1 && axis == s.placement.window_axis))
      return unfit("a thread's results lie along at most two different outer axes");
    const Axis old = d.axes[static_cast<size_t>(axis)];
    const bool whole = d.env.divisor(d.env.simplify(old.extent)) % count == 0;
    if (i == 1 && !whole) return unfit("the extent of the outer window axis is not a multiple of a thread's results");
    const Axis blocks{SymExpr::symbol(old.var.symbol_name() + "o"), d.env.simplify(ceildiv(old.extent, count)),
                      old.role};
    o.var = SymExpr::symbol(old.var.symbol_name() + "i");
    o.count = count;
    d.env.set_axis(blocks.var, blocks.extent);
    d.env.set_axis(o.var, count);
    const SymExpr position = blocks.var * SymExpr(count) + o.var;
    d.axes[static_cast<size_t>(axis)] = blocks;
    auto rewrite = [&](SymExpr& e) {
      if (e.contains(old.var)) e = d.env.simplify(e.substitute({{old.var.symbol_id(), position}}));
    };
    each_expression(nest, d, rewrite);
    each_position(nest, d, rewrite);
    if (!whole) {
      o.inside = static_cast<int>(d.conditions.size());
      d.conditions.push_back(sym_lt(position, old.extent));
    }
  }
  find_dependences(nest, d);
  return out;
}

namespace block {

SymExpr Unrolled::here(const SymExpr& e) const {
  if (unrolled_.empty() || e.is_const()) return e;
  SymExpr there = e.substitute(unrolled_);
  return there == e ? e : d_.env.simplify(there);
}

// Selects one result of the thread, or one tap of it; values that vary between them are recomputed.
void Unrolled::unroll(const SymExpr& var, const SymExpr& at) {
  unrolled_[var.symbol_id()] = at;
  for (size_t i : values_) memo_.forget(i);
}

void Unrolled::find_values() {
  const WindowAxes& w = *window_;
  auto moves = [&](const SymExpr& e) {
    return e.contains(w.fold) || std::any_of(w.outputs.begin(), w.outputs.end(),
                                             [&](const auto& o) { return o.count > 1 && e.contains(o.var); });
  };
  std::vector<char> varies(d_.live.size(), 0);
  for (size_t i = 0; i < d_.live.size(); ++i) {
    if (!d_.live[i]) continue;
    const ScalarNode& n = node(static_cast<ScalarId>(i));
    bool v = n.op == ScalarOp::Reduce; // reductions belong to one result
    if (n.op == ScalarOp::Index) v = moves(d_.sym[i]);
    auto of = [&](ScalarId a) { return varies[static_cast<size_t>(a)] != 0; };
    if (n.op == ScalarOp::Load) {
      const Access& a = d_.loads[i];
      v = moves(a.offset) || (a.predicate >= 0 && of(a.predicate));
      for (const auto& [term, stride] : a.terms) v = v || of(term) || moves(stride);
    } else if (n.op != ScalarOp::Index) {
      v = v || std::any_of(n.args.begin(), n.args.end(), of);
    }
    varies[i] = v;
    if (v) values_.push_back(i);
  }
}

// Loads by offset and condition, as expressions: equal ones read the same element. A load that was made for a result
// beyond this one is masked if that result does not exist, so this one needs another load.
std::optional<Unrolled::TapLoad*> Unrolled::tap_load(ScalarId id) {
  const Access& a = d_.loads[static_cast<size_t>(id)];
  if (!window_ || !a.terms.empty()) return std::nullopt;
  SymExpr condition = 1;
  if (a.predicate >= 0) {
    if (node(a.predicate).op != ScalarOp::Index) return std::nullopt;
    condition = here(d_.sym[static_cast<size_t>(a.predicate)]);
  }
  auto& same_place = tap_loads_[here(a.offset)];
  for (TapLoad& l : same_place)
    if (l.id == id && l.condition == condition && l.output <= output_) return &l;
  same_place.push_back({id, condition, output_, -1});
  return &same_place.back();
}

// One tap of each reduction of the nest, folded into the accumulators of one result.
void Window::fold_tap(Values& accumulators) {
  for (size_t r = 0; r < reductions_.size(); ++r) {
    const ScalarId id = reductions_[r], from = node(id).args[0];
    const DType dtype = fold_dtype(nest_, id);
    V& acc = accumulators[r];
    if (node(id).reduce == ReduceKind::Sum && node(from).op == ScalarOp::Mul && is_float(dtype) &&
        node(from).dtype == dtype) {
      V x = scalars_.value(node(from).args[0]), y = scalars_.value(node(from).args[1]);
      acc = pointwise(b_, ScalarOp::Fma, std::array{x, y, acc});
    } else {
      acc = pointwise(b_, fold_operator(node(id).reduce), std::array{acc, b_.cast(scalars_.value(from), dtype)});
    }
  }
}

// Accumulators by result: [outer output][output][reduction], flattened.
Values Window::fold_taps(Values accumulators, const SymExpr& first) {
  const WindowAxes& w = *unrolled_.window();
  const size_t each = reductions_.size();
  for (int row = 0; row < schedule_.tile.taps; row += w.row)
    at_each_output([&](size_t output) {
      Values own(accumulators.begin() + static_cast<int64_t>(output * each),
                 accumulators.begin() + static_cast<int64_t>((output + 1) * each));
      for (int tap = row; tap < row + w.row; ++tap) {
        unrolled_.unroll(w.fold, first + tap);
        fold_tap(own);
      }
      std::copy(own.begin(), own.end(), accumulators.begin() + static_cast<int64_t>(output * each));
    });
  unrolled_.leave(w.fold);
  return accumulators;
}

// Calls f(index) for each result of the thread, with c_.guard the condition that it exists.
void Window::at_each_output(const std::function<void(size_t)>& f) {
  const WindowAxes& w = *unrolled_.window();
  const WindowAxes::Outputs &inner = w.outputs[0], &outer = w.outputs[1];
  size_t n = 0;
  for (int u = 0; u < outer.count; ++u)
    for (int t = 0; t < inner.count; ++t, ++n) {
      if (outer.count > 1) unrolled_.unroll(outer.var, u);
      if (inner.count > 1) unrolled_.unroll(inner.var, t);
      V exists = -1;
      if (inner.inside >= 0 && t > 0)
        exists = sizes_.condition(unrolled_.here(d_.conditions[static_cast<size_t>(inner.inside)]));
      c_.guard = exists;
      unrolled_.set_output(exists < 0 ? 0 : t);
      f(n);
      c_.guard = -1;
      unrolled_.set_output(0);
    }
}

void Window::body() {
  const WindowAxes& w = *unrolled_.window();
  for (size_t i = 0; i < d_.live.size(); ++i)
    if (d_.live[i] && node(static_cast<ScalarId>(i)).op == ScalarOp::Reduce)
      reductions_.push_back(static_cast<ScalarId>(i));
  unrolled_.find_values();
  Values accumulators;
  for (int i = 0; i < w.outputs[0].count * w.outputs[1].count; ++i)
    for (ScalarId r : reductions_) accumulators.push_back(splat(fold_identities(b_, nest_, r)[0], full_shape()));
  if (schedule_.tile.taps == w.taps) {
    accumulators = fold_taps(std::move(accumulators), 0);
  } else {
    accumulators = b_.for_loop(
        sizes_.constant(0), sizes_.constant(w.taps / schedule_.tile.taps), sizes_.constant(1), std::move(accumulators),
        [&](V i, std::span<const V> carried) {
          return memo_.scoped([&] {
            sizes_.bind(w.round, i);
            Values next = fold_taps({carried.begin(), carried.end()}, w.round * SymExpr(schedule_.tile.taps));
            unrolled_.forget_loads();
            return next;
          });
        });
  }
  unrolled_.forget_loads();
  // All values before the first store: an output may alias an input that is read where it is written.
  const size_t each = reductions_.size();
  std::vector<Values> values;
  at_each_output([&](size_t output) {
    for (size_t r = 0; r < each; ++r)
      memo_.remember(static_cast<size_t>(reductions_[r]), accumulators[output * each + r]);
    Values& own = values.emplace_back();
    for (const Store& s : nest_.stores) own.push_back(scalars_.value(s.scalar));
  });
  at_each_output([&](size_t output) {
    for (size_t i = 0; i < nest_.stores.size(); ++i) scalars_.store(i, values[output][i]);
  });
  unrolled_.leave_all();
}

} // namespace block
} // namespace tessera
