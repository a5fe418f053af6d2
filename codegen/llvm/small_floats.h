// Conversions of f8e4m3fn and f8e5m2 by arithmetic on their bits, for targets without instructions for them. Scalars or vectors. Private to
// codegen/llvm.
#pragma once
#include "base/dtype.h"
#include <llvm/IR/IRBuilder.h>

namespace tessera::irgen {

[[nodiscard]] inline bool is_small_float(DType d) { return d == DType::F8E4M3FN || d == DType::F8E5M2; }
// The number of an i8, exactly, as f32.
[[nodiscard]] llvm::Value* from_small_float(llvm::IRBuilder<>& b, llvm::Value* bits, DType from);
// The i8 of an f32: rounded to nearest even, saturated. NaN stays NaN.
[[nodiscard]] llvm::Value* to_small_float(llvm::IRBuilder<>& b, llvm::Value* x, DType to);

} // namespace tessera::irgen
