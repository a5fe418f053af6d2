#include "codegen/schedule/fold.h"
#include <array>
#include <limits>

namespace tessera {

using V = tile::ValueId;

ScalarOp fold_operator(ReduceKind kind) {
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

DType fold_dtype(const LoopNest& nest, ScalarId r) {
  if (!is_arg_fold(nest.dag[r])) return nest.dag[r].dtype;
  DType d = nest.dag[nest.dag[r].args[0]].dtype;
  return d == DType::Bool ? DType::U8 : d;
}

std::vector<V> fold_identities(tile::Builder& b, const LoopNest& nest, ScalarId r, DType position) {
  const ScalarNode& n = nest.dag[r];
  DType d = fold_dtype(nest, r);
  ReduceKind kind = n.reduce == ReduceKind::ArgMax   ? ReduceKind::Max
                    : n.reduce == ReduceKind::ArgMin ? ReduceKind::Min
                                                     : n.reduce;
  std::vector<V> list;
  list.push_back(is_float(d) ? b.const_f(d, reduce_identity_f64(kind, d)) : b.const_i(d, reduce_identity_i64(kind, d)));
  const int64_t most =
      position == DType::I32 ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int64_t>::max();
  if (is_arg_fold(n)) list.push_back(b.const_i(position, n.select_last ? -1 : most));
  return list;
}

V arg_replaces(tile::Builder& b, const ScalarNode& r, V v, V i, V best, V best_i) {
  auto two = [&](ScalarOp o, V x, V y) { return b.scalar(o, std::array{x, y}); };
  V later = two(r.select_last ? ScalarOp::Gt : ScalarOp::Lt, i, best_i);
  V wins = two(r.reduce == ReduceKind::ArgMax ? ScalarOp::Gt : ScalarOp::Lt, v, best);
  wins = two(ScalarOp::Or, wins, two(ScalarOp::And, two(ScalarOp::Eq, v, best), later));
  if (!is_float(b.kernel().type(v).dtype)) return wins;
  V first_nan =
      two(ScalarOp::Or, b.scalar(ScalarOp::Not, std::array{b.scalar(ScalarOp::IsNan, std::array{best})}), later);
  return two(ScalarOp::Or, wins, two(ScalarOp::And, b.scalar(ScalarOp::IsNan, std::array{v}), first_nan));
}

} // namespace tessera
