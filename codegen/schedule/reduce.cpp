// Folding in the loops over the row: accumulators, masked rests, positions of argmax and argmin, and the end of a
// round.
#include "codegen/schedule/lowering.h"
#include <array>
#include <limits>

namespace tessera {
namespace {

ScalarOp combine(ReduceKind kind) {
  switch (kind) {
  case ReduceKind::Sum: return ScalarOp::Add;
  case ReduceKind::Prod: return ScalarOp::Mul;
  case ReduceKind::Max: return ScalarOp::Max;
  case ReduceKind::Min: return ScalarOp::Min;
  case ReduceKind::Any: return ScalarOp::Or;
  case ReduceKind::All: return ScalarOp::And;
  default: TESSERA_UNREACHABLE("argmax has no scalar operator");
  }
}
ReduceKind value_kind(ReduceKind kind) {
  return kind == ReduceKind::ArgMax ? ReduceKind::Max : kind == ReduceKind::ArgMin ? ReduceKind::Min : kind;
}

} // namespace

bool Lowering::is_arg(ScalarId r) const {
  return node(r).reduce == ReduceKind::ArgMax || node(r).reduce == ReduceKind::ArgMin;
}

// What reduction r folds, in the dtype it is folded in.
Lowering::V Lowering::fold_value(ScalarId r) {
  V v = value(node(r).args[0]);
  if (!is_arg(r)) return b_.cast(v, node(r).dtype);
  return b_.kernel().type(v).dtype == DType::Bool ? b_.cast(v, DType::U8) : v; // bools have no order of their own
}

// Identity tiles. The position of a fold that has seen nothing loses every tie.
Lowering::Values Lowering::identities(const Stage& stage, int lanes) {
  Values list;
  for (ScalarId r : stage.reduces) {
    DType d = is_arg(r) ? node(node(r).args[0]).dtype : node(r).dtype;
    if (is_arg(r) && d == DType::Bool) d = DType::U8;
    ReduceKind kind = value_kind(node(r).reduce);
    V v = is_float(d) ? b_.const_f(d, reduce_identity_f64(kind, d)) : b_.const_i(d, reduce_identity_i64(kind, d));
    list.push_back(b_.broadcast(v, {lanes}));
    if (is_arg(r))
      list.push_back(
          b_.broadcast(sizes_.constant(node(r).select_last ? -1 : std::numeric_limits<int64_t>::max()), {lanes}));
  }
  return list;
}

// Whether (v, i) replaces (best, best_i): NaN is the extreme; ties go to the first position, or to the last.
Lowering::V Lowering::better(ScalarId r, V v, V i, V best, V best_i) {
  auto two = [&](ScalarOp o, V x, V y) { return b_.scalar(o, std::array{x, y}); };
  V later = two(node(r).select_last ? ScalarOp::Gt : ScalarOp::Lt, i, best_i);
  V wins = two(node(r).reduce == ReduceKind::ArgMax ? ScalarOp::Gt : ScalarOp::Lt, v, best);
  wins = two(ScalarOp::Or, wins, two(ScalarOp::And, two(ScalarOp::Eq, v, best), later));
  if (!is_float(b_.kernel().type(v).dtype)) return wins;
  V first_nan =
      two(ScalarOp::Or, b_.scalar(ScalarOp::Not, std::array{b_.scalar(ScalarOp::IsNan, std::array{best})}), later);
  return two(ScalarOp::Or, wins, two(ScalarOp::And, b_.scalar(ScalarOp::IsNan, std::array{v}), first_nan));
}

Lowering::Values Lowering::accumulate(ScalarId r, std::span<const V> acc) {
  int lanes = b_.kernel().type(acc[0]).shape[0];
  V v = splat(fold_value(r), lanes);
  if (!is_arg(r)) {
    // Lanes beyond the row must not enter; where the tile runs across rows they fold for nobody.
    if (mask_ >= 0 && schedule_.kind == ScheduleKind::RowLoop) {
      DType d = node(r).dtype;
      V id = is_float(d) ? b_.const_f(d, reduce_identity_f64(node(r).reduce, d))
                         : b_.const_i(d, reduce_identity_i64(node(r).reduce, d));
      v = b_.scalar(ScalarOp::Select, std::array{mask_, v, id});
    }
    return {b_.scalar(combine(node(r).reduce), std::array{acc[0], v})};
  }
  SymExpr position = 0;
  for (const Axis& a : d_.axes)
    if (a.role == AxisRole::Row) position = position * a.extent + a.var;
  V i = splat(sizes_.number(position), lanes);
  V wins = better(r, v, i, acc[0], acc[1]);
  if (mask_ >= 0 && schedule_.kind == ScheduleKind::RowLoop) wins = b_.scalar(ScalarOp::And, std::array{wins, mask_});
  return {b_.scalar(ScalarOp::Select, std::array{wins, v, acc[0]}),
          b_.scalar(ScalarOp::Select, std::array{wins, i, acc[1]})};
}

// Results of a round: along the row, each set of accumulators is folded to a scalar and the scalars combined.
void Lowering::finish(const Stage& stage, const std::vector<Values>& groups) {
  bool row = schedule_.kind == ScheduleKind::RowLoop;
  size_t at = 0;
  for (ScalarId r : stage.reduces) {
    V v = -1, i = -1;
    for (const Values& g : groups) {
      if (!is_arg(r)) {
        V x = row ? b_.reduce(node(r).reduce, g[at], 0) : g[at];
        v = v < 0 ? x : b_.scalar(combine(node(r).reduce), std::array{v, x});
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
    if (v < 0) { // a row that is known to be empty
      V id = identities({.reduces = {r}, .stores = {}, .keeps = {}}, 1)[is_arg(r) ? 1 : 0];
      v = i = b_.reduce(is_arg(r) ? ReduceKind::Max : node(r).reduce, id, 0);
    }
    remember(static_cast<size_t>(r), is_arg(r) ? i : v);
    at += is_arg(r) ? 2 : 1;
  }
}

} // namespace tessera
