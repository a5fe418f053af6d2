// What folding is made of: the scalar operator, identities, and which of two (value, position) pairs an argmax keeps.
// Shared by the lowerings for hosts and for GPUs.
#pragma once
#include "codegen/tile/tile.h"
#include "fusion/loop_nest.h"

namespace tessera {

[[nodiscard]] inline bool is_arg_fold(const ScalarNode& r) {
  return r.reduce == ReduceKind::ArgMax || r.reduce == ReduceKind::ArgMin;
}
// Of every kind but argmax and argmin.
[[nodiscard]] ScalarOp fold_operator(ReduceKind kind);
// The dtype that reduction r folds in. Bools have no order: an argmax of them goes by u8.
[[nodiscard]] DType fold_dtype(const LoopNest& nest, ScalarId r);
// Scalars to start reduction r from: the value and, for argmax and argmin, a position (i64 or i32) that loses every
// tie.
[[nodiscard]] std::vector<tile::ValueId> fold_identities(tile::Builder& b, const LoopNest& nest, ScalarId r,
                                                         DType position = DType::I64);
// Whether (v, i) replaces (best, best_i) in the argmax or argmin r: NaN is the extreme; ties go to the first position,
// or to the last.
[[nodiscard]] tile::ValueId arg_replaces(tile::Builder& b, const ScalarNode& r, tile::ValueId v, tile::ValueId i,
                                         tile::ValueId best, tile::ValueId best_i);

} // namespace tessera
