// Few long rows, of which each is shared by several programs on a host: every program folds its part of the row and
// leaves the state in a workspace; the last one to arrive merges the states in the order of the parts, so that a result
// is the same in every run and with any number of threads, and stores. Nobody waits.
#include "codegen/schedule/fold.h"
#include "codegen/schedule/lowering.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>

namespace tessera {

// One round of reductions, whose results are all that is stored.
bool splits(const LoopNest& nest, const Domain& d) {
  const Stages plan = plan_stages(nest, d);
  return d.reduces && online_fits(nest, d) && plan.stages.size() == 1 && !plan.stages[0].reduces.empty() &&
         plan.stages[0].stores.empty() && plan.stages[0].keeps.empty();
}

void Lowering::split_parameters() {
  const FoldState state = fold_state(nest_, stages_.stages[0].reduces, online_);
  for (DType dtype : state.dtypes) {
    workspaces_.push_back(b_.param("partial", {tile::Type::Kind::Pointer, dtype, {}}, true));
    out_.workspaces.push_back({dtype, 0});
  }
  counters_ = b_.param("counters", {tile::Type::Kind::Pointer, DType::I32, {}}, true);
}

void Lowering::split_sizes() {
  out_.counters = out_.grid;
  out_.grid = d_.env.simplify(out_.grid * parts_);
  for (Workspace& w : out_.workspaces) w.count = out_.grid;
}

void Lowering::split_round() {
  known_ = 0;
  hoist(~d_.row_mask);
  round_ = 0;
  const SymExpr& extent = axis(static_cast<size_t>(tile_axis_)).extent;
  const V each = sizes_.number(d_.env.simplify(ceildiv(extent, parts_ * wide_) * wide_)), end = sizes_.number(extent);
  const V from = op(ScalarOp::Min, op(ScalarOp::Mul, part_, each), end);
  const V to = op(ScalarOp::Min, op(ScalarOp::Add, from, each), end);
  const Fold fold(b_, nest_, online_, fold_state(nest_, stages_.stages[0].reduces, online_));
  const Values own = fold.merge(fold_range(0, fold, from, to), 0);
  round_ = -1;
  const V count = sizes_.constant(parts_), first = op(ScalarOp::Mul, row_number_, count);
  for (size_t i = 0; i < own.size(); ++i) b_.store(workspaces_[i], op(ScalarOp::Add, first, part_), own[i]);
  const V last = b_.arrive(counters_, row_number_, part_, count);
  auto merge = [&]() -> Values {
    scoped([&] {
      const V places = pointwise(b_, ScalarOp::Add, std::array{b_.range(static_cast<int>(parts_)), first});
      Values states;
      for (V w : workspaces_) states.push_back(b_.load(w, places));
      known_ = 1;
      finish_row(fold, fold.merge(states, 0));
      store_rows();
    });
    return {};
  };
  b_.if_else(last, merge, [] { return Values(); });
}

} // namespace tessera
