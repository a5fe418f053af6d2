// Few long rows, or few columns, that several programs share on a host: each folds its part of the row, or of the
// points down the columns, and leaves the state in a workspace; the last one to arrive merges the states in the order
// of the parts, so that a result is the same in every run and with any number of threads, and stores. Nobody waits.
#include "codegen/schedule/lower/fold.h"
#include "codegen/schedule/lower/lowering.h"
#include "codegen/schedule/lower/shapes.h"
#include <algorithm>
#include <array>

namespace tessera {

// One round of reductions, whose results are all that is stored. Rows have one axis.
bool splits(const LoopNest& nest, const Domain& d, ScheduleKind kind) {
  if (kind != ScheduleKind::ColumnLoop && !(kind == ScheduleKind::RowLoop && online_fits(nest, d))) return false;
  const Stages plan = plan_stages(nest, d);
  return d.reduces && plan.stages.size() == 1 && !plan.stages[0].reduces.empty() && plan.stages[0].stores.empty() &&
         plan.stages[0].keeps.empty();
}

void Lowering::split_parameters() {
  const FoldState state = fold_state(nest_, stages_.stages[0].reduces, online_, d_.position_dtype());
  for (DType dtype : state.dtypes) {
    workspaces_.push_back(b_.param("partial", {tile::Type::Kind::Pointer, dtype, {}}, true));
    out_.workspaces.push_back({dtype, 0});
  }
  counters_ = b_.param("counters", {tile::Type::Kind::Pointer, DType::I32, {}}, true);
}

void Lowering::split_sizes() {
  out_.counters = out_.grid;
  out_.grid = d_.env.simplify(out_.grid * parts_);
  for (Workspace& w : out_.workspaces) w.count = d_.env.simplify(outer_points() * parts_);
}

SymExpr Lowering::outer_points() const {
  SymExpr count = 1;
  for (const Axis& a : d_.axes)
    if (a.role != AxisRole::Row) count *= a.extent;
  return d_.env.simplify(count);
}

// Of a range of so many, in pieces of `unit`: this program's.
std::pair<Lowering::V, Lowering::V> Lowering::own_part(const SymExpr& extent, int64_t unit) {
  const V each = sizes_.number(d_.env.simplify(ceildiv(extent, parts_ * unit) * unit)), end = sizes_.number(extent);
  const V from = op(ScalarOp::Min, op(ScalarOp::Mul, part_, each), end);
  return {from, op(ScalarOp::Min, op(ScalarOp::Add, from, each), end)};
}

void Lowering::if_last(const std::function<void()>& body) {
  const V last = b_.arrive(counters_, row_number_, part_, sizes_.constant(parts_));
  auto then = [&]() -> Values {
    scoped(body);
    return {};
  };
  b_.if_else(last, then, [] { return Values(); });
}

void Lowering::split_round() {
  known_ = 0;
  hoist(~d_.row_mask);
  round_ = 0;
  const auto [from, to] = own_part(axis(static_cast<size_t>(tile_axis_)).extent, wide_);
  const Fold fold(b_, nest_, online_, fold_state(nest_, stages_.stages[0].reduces, online_, d_.position_dtype()));
  const Values own = fold.merge(fold_range(0, fold, from, to), 0);
  round_ = -1;
  const V count = sizes_.constant(parts_), first = op(ScalarOp::Mul, row_number_, count);
  for (size_t i = 0; i < own.size(); ++i) b_.store(workspaces_[i], op(ScalarOp::Add, first, part_), own[i]);
  if_last([&] {
    const V places = pointwise(b_, ScalarOp::Add, std::array{b_.range(static_cast<int>(parts_)), first});
    Values states;
    for (V w : workspaces_) states.push_back(b_.load(w, places));
    known_ = 1;
    finish_row(fold, fold.merge(states, 0));
    store_rows();
  });
}

// Of this program's tiles of columns.
void Lowering::split_columns(const std::function<void(const std::function<void()>&)>& each_tile) {
  const Stage& stage = stages_.stages[0];
  // Where part k of the tile's columns lies.
  auto place = [&](V k) {
    SymExpr position = 0;
    for (const Axis& a : d_.axes)
      if (a.role != AxisRole::Row) position = position * a.extent + a.var;
    return op(ScalarOp::Add, op(ScalarOp::Mul, k, sizes_.number(outer_points())), sizes_.number(position));
  };
  each_tile([&] {
    known_ = 0;
    hoist(~d_.row_mask);
    round_ = 0;
    share_ = own_part(axis(row_axes_[0]).extent, 1);
    const Values own = column_points(0);
    share_.reset();
    round_ = -1;
    const V offset = place(part_);
    for (size_t i = 0; i < own.size(); ++i) b_.store(workspaces_[i], offset, own[i], mask_);
  });
  if_last([&] {
    each_tile([&] {
      const V none = sizes_.number(0), count = sizes_.constant(parts_);
      Values state = loop(none, count, 1, identities(stage, sizes_.lanes()), [&](V k, Values before) {
        const V offset = place(k);
        Values parts, next;
        for (V w : workspaces_) parts.push_back(b_.load(w, offset, mask_));
        for (ScalarId r : stage.reduces) {
          const size_t i = next.size();
          if (!is_arg(r)) {
            next.push_back(b_.scalar(fold_operator(node(r).reduce), std::array{before[i], parts[i]}));
            continue;
          }
          const V wins = better(r, parts[i], parts[i + 1], before[i], before[i + 1]);
          for (size_t n : {i, i + 1})
            next.push_back(b_.scalar(ScalarOp::Select, std::array{wins, parts[n], before[n]}));
        }
        return next;
      });
      known_ = 1;
      finish(stage, {std::move(state)});
      store_rows();
    });
  });
}

} // namespace tessera
