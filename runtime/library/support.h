// Limits of the library calls: queried by the compile driver before it decides on a call, so that a refusal is known,
// with its reason, at compile time.
#pragma once
#include "runtime/executable.h"

namespace tessera {

// Each returns the empty string, or why the call cannot be made ("f16 operand: the host libraries compute in f32").
// `dtypes` are those of operands and result in the order of the call. Any non-negative strides are taken (what the
// library cannot address is packed); result strides must not let two elements share a place. Sizes may be symbolic.
[[nodiscard]] std::string matmul_refusal(const MatmulCall& call, std::span<const DType> dtypes);
[[nodiscard]] std::string conv_refusal(const ConvCall& call, std::span<const DType> dtypes);
[[nodiscard]] std::string pool_refusal(const PoolCall& call, std::span<const DType> dtypes);

} // namespace tessera
