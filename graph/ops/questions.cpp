#include "graph/ops/questions.h"

namespace tessera::ops {

bool is(const Node& node, Structured kind) {
  const StructuredOp* structured = node.op->structured();
  return structured && structured->kind == kind;
}

bool is(const Node& node, ScalarOp op) { return node.op->pointwise() && node.op->name == info(op).name; }

bool is_transposed(const Node& node) { return node.op->name == "conv_transpose"; }

Ints permutation_of(const Node& node) { return node.op->name == "transpose" ? node.attributes.ints("perm") : Ints(); }

Piece piece_of(const Node& node) {
  if (node.op->name == "sort_tiles") return Piece::Tiles;
  return node.op->name == "merge_runs" || node.op->name == "scatter_runs" ? Piece::Runs : Piece::Rows;
}

Checks checks_of(const Node& node) {
  if (node.op->name == "require") return Checks::Condition;
  return node.op->name == "checked_index" ? Checks::Index : Checks::Nothing;
}

} // namespace tessera::ops
