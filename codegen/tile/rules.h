// Type rules of tile operations, shared by builder, parser and verifier.
#pragma once
#include "codegen/tile/tile.h"

namespace tessera::tile {

inline constexpr int64_t kMaxTileElements = int64_t{1} << 20; // of one tile; products of dimensions cannot overflow
inline constexpr int kMaxRank = 8;
inline constexpr int kMaxDepth = 64; // nesting of regions
inline constexpr int kMaxStages = 8; // of software pipelining

[[nodiscard]] std::string_view op_name(OpKind kind);
// The word of an operation in the text form: by its kind, its scalar operator, or its kind and fold.
struct OpWord {
  OpKind kind = OpKind::Const;
  ScalarOp scalar = ScalarOp::Add;
  ReduceKind reduce = ReduceKind::Sum;
};
[[nodiscard]] std::string op_word(const OpWord& op);
[[nodiscard]] const OpWord* op_from_word(std::string_view word); // null: no operation is called so
// Error for a type that no value of a kernel may have: complex or sub-byte elements, dimensions outside the limits.
[[nodiscard]] Status check_type(const Type& type);
// Operand count, attributes, operand and result types of one operation, regions excluded except for the types at their
// edges (For, If). Error Internal with the reason and no location.
[[nodiscard]] Status check_op(const Kernel& kernel, const Op& op);
// The part of a kernel that breaks a rule; -1: none of its kind.
struct FaultyPart {
  OpId op = -1;
  int param = -1;
};
// verify() that says where.
[[nodiscard]] Status verify(const Kernel& kernel, FaultyPart& part);
// Result dtype and shape of a pointwise operation on these operand types; error if they do not match.
[[nodiscard]] Result<Type> scalar_result_type(ScalarOp op, std::span<const Type> operands);

} // namespace tessera::tile
