// f16 and bf16 elements as f32: exact.
#pragma once
#include "base/dtype.h"

namespace tessera {

// `dtype` is F16 or BF16. The ranges do not overlap. Subnormals, infinities and NaN are kept.
void widen(float* to, const uint16_t* from, int64_t count, DType dtype);

} // namespace tessera
