// Elements of reductions: the combining operator, identities, and the comparison of (value, position) pairs of an
// argmax. Shared by the lowerings for hosts and GPUs.
#pragma once
#include "codegen/tile/tile.h"
#include "fusion/loop_nest.h"

namespace tessera {

[[nodiscard]] inline bool is_arg_fold(const ScalarNode& r) {
  return r.reduce == ReduceKind::ArgMax || r.reduce == ReduceKind::ArgMin;
}
// The combining operator of every kind but argmax and argmin.
[[nodiscard]] ScalarOp fold_operator(ReduceKind kind);
// The accumulator dtype of reduction r. An argmax of bools uses u8, because bools have no order.
[[nodiscard]] DType fold_dtype(const LoopNest& nest, ScalarId r);
// Identity scalars of reduction r: the value and, for argmax and argmin, a position (i64 or i32) that loses every tie.
[[nodiscard]] std::vector<tile::ValueId> fold_identities(tile::Builder& b, const LoopNest& nest, ScalarId r,
                                                         DType position = DType::I64);
// True if (v, i) replaces (best, best_i) in the argmax or argmin r: NaN wins; equal values are ordered by position,
// first or last.
[[nodiscard]] tile::ValueId arg_replaces(tile::Builder& b, const ScalarNode& r, tile::ValueId v, tile::ValueId i,
                                         tile::ValueId best, tile::ValueId best_i);

} // namespace tessera
