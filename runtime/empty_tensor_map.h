// Tensor maps of tensors without elements. The driver encodes none, and a kernel copies nothing by one: a launch passes
// anything in its place.
#pragma once
#include "runtime/tensor_map.h"
#include <algorithm>

namespace tessera {

[[nodiscard]] inline bool is_empty(const TensorMapOf<int64_t>& map) {
  return std::find(map.dims.begin(), map.dims.end(), 0) != map.dims.end();
}

} // namespace tessera
