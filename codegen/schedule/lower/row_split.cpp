// Few long rows, or few columns, divided among programs on a host. Each program folds its part of the row, or of the
// points down the columns, and stores its state in a workspace; the last one to arrive combines the states in the order
// of the parts, so that a result has the same bits in every run and with any number of threads, and stores. No program
// waits.
#include "codegen/schedule/lower/row_rounds.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>

namespace tessera {

// Requires one stage of reductions whose results are all that is stored. Rows have one axis.
namespace loops {

void SplitRows::add_parameters() {
  const FoldState state = fold_state(nest_, stages_.stages[0].reduces, online_, d_.position_dtype());
  for (DType dtype : state.dtypes) {
    workspaces_.push_back(b_.param("partial", {tile::Type::Kind::Pointer, dtype, {}}, true));
    out_.workspaces.push_back({dtype, 0});
  }
  counters_ = b_.param("counters", {tile::Type::Kind::Pointer, DType::I32, {}}, true);
}

void SplitRows::add_sizes() {
  out_.counters = out_.grid;
  out_.grid = d_.env.simplify(out_.grid * c_.parts);
  for (Workspace& w : out_.workspaces) w.count = d_.env.simplify(outer_points() * c_.parts);
}

V SplitRows::take_part(V number) {
  part_ = op(ScalarOp::Mod, number, sizes_.constant(c_.parts));
  return row_number_ = op(ScalarOp::Div, number, sizes_.constant(c_.parts));
}

SymExpr SplitRows::outer_points() const {
  SymExpr count = 1;
  for (const Axis& a : d_.axes)
    if (a.role != AxisRole::Row) count *= a.extent;
  return d_.env.simplify(count);
}

// This program's part of a range, in multiples of `unit`.
std::pair<V, V> SplitRows::own_part(const SymExpr& extent, int64_t unit) {
  const V each = sizes_.number(d_.env.simplify(ceildiv(extent, c_.parts * unit) * unit)), end = sizes_.number(extent);
  const V from = op(ScalarOp::Min, op(ScalarOp::Mul, part_, each), end);
  return {from, op(ScalarOp::Min, op(ScalarOp::Add, from, each), end)};
}

void SplitRows::if_last(const std::function<void()>& body) {
  const V last = b_.arrive(counters_, row_number_, part_, sizes_.constant(c_.parts));
  auto then = [&]() -> Values {
    memo_.scoped(body);
    return {};
  };
  b_.if_else(last, then, [] { return Values(); });
}

void SplitRows::round() {
  c_.known = 0;
  scalars_.hoist(~d_.row_mask);
  c_.round = 0;
  const auto [from, to] = own_part(tile_axis().extent, c_.wide);
  const Fold fold(b_, nest_, online_, fold_state(nest_, stages_.stages[0].reduces, online_, d_.position_dtype()));
  const Values own = fold.merge(online_rows_.fold_range(0, fold, from, to), 0);
  c_.round = -1;
  const V count = sizes_.constant(c_.parts), first = op(ScalarOp::Mul, row_number_, count);
  for (size_t i = 0; i < own.size(); ++i) b_.store(workspaces_[i], op(ScalarOp::Add, first, part_), own[i]);
  if_last([&] {
    const V places = pointwise(b_, ScalarOp::Add, std::array{b_.range(static_cast<int>(c_.parts)), first});
    Values states;
    for (V w : workspaces_) states.push_back(b_.load(w, places));
    c_.known = 1;
    online_rows_.finish_row(fold, fold.merge(states, 0));
    scalars_.store_rows();
  });
}

// Over this program's tiles of columns.
void SplitRows::columns(const std::function<void(const std::function<void()>&)>& each_tile) {
  const Stage& stage = stages_.stages[0];
  // Offset of part k of the tile's columns.
  auto place = [&](V k) {
    SymExpr position = 0;
    for (const Axis& a : d_.axes)
      if (a.role != AxisRole::Row) position = position * a.extent + a.var;
    return op(ScalarOp::Add, op(ScalarOp::Mul, k, sizes_.number(outer_points())), sizes_.number(position));
  };
  each_tile([&] {
    c_.known = 0;
    scalars_.hoist(~d_.row_mask);
    c_.round = 0;
    const Values own = rounds_.column_points(0, own_part(axis(c_.row_axes[0]).extent, 1));
    c_.round = -1;
    const V offset = place(part_);
    for (size_t i = 0; i < own.size(); ++i) b_.store(workspaces_[i], offset, own[i], c_.mask);
  });
  if_last([&] {
    each_tile([&] {
      const V none = sizes_.number(0), count = sizes_.constant(c_.parts);
      Values state =
          row_loop_.loop(none, count, 1, folding_.identities(stage, sizes_.lanes()), [&](V k, Values before) {
            const V offset = place(k);
            Values parts, next;
            for (V w : workspaces_) parts.push_back(b_.load(w, offset, c_.mask));
            for (ScalarId r : stage.reduces) {
              const size_t i = next.size();
              if (!folding_.is_arg(r)) {
                next.push_back(b_.scalar(fold_operator(node(r).reduce), std::array{before[i], parts[i]}));
                continue;
              }
              const V wins = folding_.better(r, parts[i], parts[i + 1], before[i], before[i + 1]);
              for (size_t n : {i, i + 1})
                next.push_back(b_.scalar(ScalarOp::Select, std::array{wins, parts[n], before[n]}));
            }
            return next;
          });
      c_.known = 1;
      folding_.finish(stage, {std::move(state)});
      scalars_.store_rows();
    });
  });
}

} // namespace loops
} // namespace tessera
