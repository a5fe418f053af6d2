// Weights that a graph-only file declares without data.
#pragma once
#include "base/tensor.h"

namespace tessera {

// A tensor in the place of such a weight: one without contents (no data()), or `made_up`: small positive numbers (0 and 1
// of integers and bool), the same for the same dtype; large ones share a few megabytes of memory, so that a model of any
// size fits. Error OutOfMemory.
[[nodiscard]] Result<Tensor> missing_weight(DType dtype, Dims dims, bool made_up);

} // namespace tessera
