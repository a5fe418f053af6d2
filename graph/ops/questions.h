// Questions about nodes that folders above have, so that no pass tests an operator's name.
#pragma once
#include "graph/ir/operator.h"
#include "graph/scalar/scalar.h"
#include <optional>

namespace tessera::ops {

// The bf16 numbers that an f32 is the sum of: operators float_part and matmul_of_parts.
inline constexpr int kFloatParts = 3;

[[nodiscard]] bool is(const Node& node, Structured kind);
// True for a matmul, of sums of parts and of groups as well.
[[nodiscard]] bool is_matrix_product(const Node& node);
// True for the pointwise operator of this name: add(a, b) is ScalarOp::Add, a cast ScalarOp::Cast however it rounds.
[[nodiscard]] bool is(const Node& node, ScalarOp op);
// True for a convolution whose weight has the input's channels first.
[[nodiscard]] bool is_transposed(const Node& node);
// Product of groups of consecutive rows, or of groups of the depth (graph/ops/grouped.cpp), whose ends are operand 2.
enum class Grouped : uint8_t { No, Rows, Depth };
[[nodiscard]] Grouped grouped(const Graph& graph, const Node& node);
// How a node permutes the dimensions of its operand; empty for one that does not.
[[nodiscard]] Ints permutation_of(const Node& node);

// The 8-bit or smaller float whose numbers a node has of codes, its operand (decode_float); nothing for another node.
[[nodiscard]] std::optional<DType> decoded_from(const Node& node);
// The float whose codes a node has of numbers, its operand (encode_float); nothing for another node.
[[nodiscard]] std::optional<DType> encoded_to(const Node& node);

// A node may yield its first operand in another shape: the same elements in the same order, or repeated along dimensions.
enum class Reshapes : uint8_t { No, InOrder, Repeated };
[[nodiscard]] Reshapes reshapes(const Node& node);
// The dimensions of the first operand, of this rank, at which operand `operand` gives positions; empty where it gives
// none.
[[nodiscard]] std::vector<size_t> indexed_dimensions(const Node& node, size_t operand, size_t rank);

// A sort or scatter works on whole rows, or on the tiles and sorted runs into which passes of a device divide them.
enum class Piece : uint8_t { Rows, Tiles, Runs };
[[nodiscard]] Piece piece_of(const Node& node);

// A node may check a condition, its second operand, or an index before it yields its first operand.
enum class Checks : uint8_t { Nothing, Condition, Index };
[[nodiscard]] Checks checks_of(const Node& node);

} // namespace tessera::ops
