// Reductions in the loops over the row: accumulators, masked remainders, positions of argmax and argmin, and the end of
// a stage.
#include "codegen/schedule/lower/reduce.h"
#include <array>

namespace tessera::loops {

// The operand of reduction r in its accumulator dtype.
V Folding::fold_value(ScalarId r) { return b_.cast(scalars_.value(node(r).args[0]), fold_dtype(nest_, r)); }

// Identity tiles.
Values Folding::identities(const Stage& stage, int lanes) {
  Values list;
  for (ScalarId r : stage.reduces)
    for (V v : fold_identities(b_, nest_, r, d_.position_dtype())) list.push_back(b_.broadcast(v, {lanes}));
  return list;
}

std::vector<bool> Folding::sums(const Stage& stage) const {
  std::vector<bool> out;
  for (ScalarId r : stage.reduces) {
    out.push_back(node(r).reduce == ReduceKind::Sum && is_float(fold_dtype(nest_, r)));
    if (is_arg(r)) out.push_back(false);
  }
  return out;
}

V Folding::better(ScalarId r, V v, V i, V best, V best_i) { return arg_replaces(b_, node(r), v, i, best, best_i); }

Values Folding::accumulate(ScalarId r, std::span<const V> acc) {
  int lanes = b_.kernel().type(acc[0]).shape[0];
  V v = splat(fold_value(r), lanes);
  if (!is_arg(r)) {
    // Lanes beyond the row must not contribute; if the tile runs across rows, their results are unused.
    if (c_.mask >= 0 && is_row_loop()) {
      v = b_.scalar(ScalarOp::Select, std::array{c_.mask, v, fold_identities(b_, nest_, r)[0]});
    }
    return {b_.scalar(fold_operator(node(r).reduce), std::array{acc[0], v})};
  }
  SymExpr position = 0;
  for (const Axis& a : d_.axes)
    if (a.role == AxisRole::Row) position = position * a.extent + a.var;
  V i = splat(b_.cast(sizes_.number(position), d_.position_dtype()), lanes);
  V wins = better(r, v, i, acc[0], acc[1]);
  if (c_.mask >= 0 && is_row_loop()) wins = b_.scalar(ScalarOp::And, std::array{wins, c_.mask});
  return {b_.scalar(ScalarOp::Select, std::array{wins, v, acc[0]}),
          b_.scalar(ScalarOp::Select, std::array{wins, i, acc[1]})};
}

// Results of a stage: along the row, each set of accumulators is folded to a scalar, and the scalars are combined.
void Folding::finish(const Stage& stage, const std::vector<Values>& groups) {
  bool row = is_row_loop();
  size_t at = 0;
  for (ScalarId r : stage.reduces) {
    V v = -1, i = -1;
    for (const Values& g : groups) {
      if (!is_arg(r)) {
        V x = row ? b_.reduce(node(r).reduce, g[at], 0) : g[at];
        v = v < 0 ? x : b_.scalar(fold_operator(node(r).reduce), std::array{v, x});
        continue;
      }
      auto [x, xi] =
          row ? b_.reduce_arg(node(r).reduce, g[at], g[at + 1], 0, node(r).select_last) : std::pair{g[at], g[at + 1]};
      if (v < 0) {
        v = x;
        i = xi;
        continue;
      }
      V wins = better(r, x, xi, v, i);
      v = b_.scalar(ScalarOp::Select, std::array{wins, x, v});
      i = b_.scalar(ScalarOp::Select, std::array{wins, xi, i});
    }
    if (v < 0) { // an empty row
      V id = identities({.reduces = {r}, .stores = {}, .caches = {}}, 1)[is_arg(r) ? 1 : 0];
      v = i = b_.reduce(is_arg(r) ? ReduceKind::Max : node(r).reduce, id, 0);
    }
    memo_.remember(static_cast<size_t>(r), is_arg(r) ? b_.cast(i, DType::I64) : v);
    at += is_arg(r) ? 2 : 1;
  }
}

} // namespace tessera::loops
