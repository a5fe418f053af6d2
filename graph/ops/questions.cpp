#include "graph/ops/questions.h"
#include <numeric>

namespace tessera::ops {

bool is(const Node& node, Structured kind) {
  const StructuredOp* structured = node.op->structured();
  return structured && structured->kind == kind;
}

bool is_matrix_product(const Node& node) {
  return is(node, Structured::Matmul) || is(node, Structured::MatmulOfParts) || is(node, Structured::GroupedMatmul);
}

bool is(const Node& node, ScalarOp op) { return node.op->pointwise() && node.op->name == info(op).name; }

bool is_transposed(const Node& node) { return node.op->name == "conv_transpose"; }

Grouped grouped(const Graph& graph, const Node& node) {
  if (!is(node, Structured::GroupedMatmul)) return Grouped::No;
  return graph.type(node.operands[1]).rank() == 3 ? Grouped::Rows : Grouped::Depth;
}

Ints permutation_of(const Node& node) { return node.op->name == "transpose" ? node.attributes.ints("perm") : Ints(); }

std::optional<DType> decoded_from(const Node& node) {
  return node.op->name == "decode_float" ? std::optional(std::get<DType>(*node.attributes.find("from"))) : std::nullopt;
}
std::optional<DType> encoded_to(const Node& node) {
  return node.op->name == "encode_float" ? std::optional(std::get<DType>(*node.attributes.find("to"))) : std::nullopt;
}

Reshapes reshapes(const Node& node) {
  if (node.op->name == "reshape") return Reshapes::InOrder;
  return node.op->name == "expand" ? Reshapes::Repeated : Reshapes::No;
}

std::vector<size_t> indexed_dimensions(const Node& node, size_t operand, size_t rank) {
  if (operand == 0) return {};
  if (node.op->name == "gather_at") return {operand - 1};
  if (node.op->name == "gather_nd") { // tuples of positions
    std::vector<size_t> all(rank);
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }
  if (node.op->name != "gather" && node.op->name != "gather_elements") return {};
  const int64_t axis = node.attributes.i("axis");
  return {static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis)};
}

Piece piece_of(const Node& node) {
  if (node.op->name == "sort_tiles") return Piece::Tiles;
  return node.op->name == "merge_runs" || node.op->name == "scatter_runs" ? Piece::Runs : Piece::Rows;
}

Checks checks_of(const Node& node) {
  if (node.op->name == "require") return Checks::Condition;
  return node.op->name == "checked_index" ? Checks::Index : Checks::Nothing;
}

} // namespace tessera::ops
