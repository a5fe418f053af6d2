// Declarations that records of matrix products share, private to matmul.cpp and grouped.cpp.
#pragma once
#include "graph/ops/build.h"

namespace tessera {

void register_grouped_ops(OpTable&);

namespace ops {
// The dtype of a product of such operands: attribute `wide` 1 makes it f32 for f16 and bf16.
[[nodiscard]] DType product_dtype(DType operands, const Node& node);
} // namespace ops
} // namespace tessera
