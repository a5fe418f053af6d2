// Copies elements of 4 or 2 bytes between two strided layouts of the same dims.
#pragma once
#include <cstdint>
#include <span>

namespace tessera {

// to[sum i*to_strides] = from[sum i*from_strides] for every index below `dims`. Any rank; strides may be 0 in `from`.
// Works in small squares where one side runs along one dimension and the other along another, so that both stay in
// cache.
void strided_copy(float* to, const float* from, std::span<const int64_t> dims, std::span<const int64_t> to_strides,
                  std::span<const int64_t> from_strides);
void strided_copy(uint16_t* to, const uint16_t* from, std::span<const int64_t> dims,
                  std::span<const int64_t> to_strides, std::span<const int64_t> from_strides);

} // namespace tessera
