// The type rules of single tile operations, shared by builder, parser and verifier so that they cannot disagree.
#pragma once
#include "codegen/tile/tile.h"

namespace tessera::tile {

inline constexpr int64_t kMaxTileElements = int64_t{1}
                                            << 20; // one tile; keeps products of dimensions far from overflow
inline constexpr int kMaxRank = 8;
inline constexpr int kMaxDepth = 64; // nesting of regions
inline constexpr int kMaxAhead = 8;  // rounds of a loop

// Name of an operation in the text form; Scalar, Reduce and Scan are spelled by their scalar operator or kind.
[[nodiscard]] std::string_view op_name(OpKind kind);
// A type that a value of a kernel may have: a whole-byte, non-complex element type, dimensions >= 1 within the limits.
[[nodiscard]] Status check_type(const Type& type);
// Operand count, attributes, operand and result types of one operation, regions excluded except for the types at their
// edges (For, If). Error Internal with the reason, without location.
[[nodiscard]] Status check_op(const Kernel& kernel, const Op& op);
// Result dtype and shape of a pointwise operation on these operand types; error when they do not go together.
[[nodiscard]] Result<Type> scalar_result_type(ScalarOp op, std::span<const Type> operands);

} // namespace tessera::tile
