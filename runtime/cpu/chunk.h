// How the programs of a kernel are divided among the threads of the host.
#pragma once
#include <cstdint>

namespace tessera {

// Elements of pointwise work that are worth handing to another core: some microseconds.
inline constexpr int64_t kElementsPerChunk = 8192;

} // namespace tessera
