// Reductions of tiles: along the row within a tile, and accumulators of loops over the row.
#include "codegen/schedule/block_lowering.h"
#include "codegen/schedule/fold.h"
#include "codegen/schedule/shapes.h"
#include <array>

namespace tessera {

std::vector<int> BlockLowering::full_shape() const {
  std::vector<int> shape;
  for (const Side& s : sides_)
    if (s.dim >= 0) shape.push_back(s.lanes);
  return shape;
}

BlockLowering::V BlockLowering::position() { return sizes_.number(axis(*fold_side()).var); }

// What reduction r folds, in the dtype it is folded in; positions beyond the row hold the identity.
BlockLowering::V BlockLowering::fold_value(ScalarId r) {
  DType dtype = fold_dtype(nest_, r);
  V v = b_.cast(value(node(r).args[0]), dtype);
  if (fold_side()->mask < 0) return v;
  // Loads beyond the row are 0: often the value is the identity there anyhow.
  ScalarId from = node(r).args[0];
  auto there = value_of_zeros(nest_, from, [&](ScalarId load) { return d_.row_varying(load); });
  if (there) {
    ReduceKind kind = node(r).reduce;
    if (node(from).dtype != dtype) there = eval_scalar(ScalarOp::Cast, dtype, node(from).dtype, std::array{*there});
    if (!is_arg_fold(node(r)) &&
        same_value(dtype, *there, {reduce_identity_f64(kind, dtype), reduce_identity_i64(kind, dtype)}))
      return v;
  }
  return pointwise(b_, ScalarOp::Select, std::array{fold_side()->mask, v, fold_identities(b_, nest_, r)[0]});
}

// Of tiles of the full shape: folded along the row, the dimension kept with one position.
BlockLowering::V BlockLowering::fold(ScalarId r, V v, V i) {
  int dim = fold_side()->dim;
  bool arg = is_arg_fold(node(r));
  if (dim < 0) return arg ? i : v; // a row of one point
  V folded =
      arg ? b_.reduce_arg(node(r).reduce, v, i, dim, node(r).select_last).second : b_.reduce(node(r).reduce, v, dim);
  return full_shape().size() > 1 ? b_.expand_dims(folded, dim) : folded;
}

// The whole row stands in the tile.
BlockLowering::V BlockLowering::reduce(ScalarId r) {
  if (fold_side()->dim < 0) return fold(r, fold_value(r), is_arg_fold(node(r)) ? position() : -1);
  V v = full(fold_value(r));
  if (!is_arg_fold(node(r))) return fold(r, v, -1);
  V i = position();
  if (fold_side()->mask >= 0)
    i = pointwise(b_, ScalarOp::Select, std::array{fold_side()->mask, i, fold_identities(b_, nest_, r)[1]});
  return fold(r, v, full(i));
}

BlockLowering::Values BlockLowering::identities(const Stage& stage) {
  Values list;
  for (ScalarId r : stage.reduces)
    for (V v : fold_identities(b_, nest_, r)) list.push_back(full(v));
  return list;
}

// The accumulators of r after this tile; acc: those before it, first.
BlockLowering::Values BlockLowering::accumulate(ScalarId r, std::span<const V> acc) {
  V v = full(fold_value(r));
  if (!is_arg_fold(node(r))) return {b_.scalar(fold_operator(node(r).reduce), std::array{acc[0], v})};
  V i = full(position());
  V wins = arg_replaces(b_, node(r), v, i, acc[0], acc[1]);
  if (fold_side()->mask >= 0) wins = pointwise(b_, ScalarOp::And, std::array{wins, fold_side()->mask});
  return {b_.scalar(ScalarOp::Select, std::array{wins, v, acc[0]}),
          b_.scalar(ScalarOp::Select, std::array{wins, i, acc[1]})};
}

} // namespace tessera
