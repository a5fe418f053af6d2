// Memory for tensors. Calls of ever new sizes would fill the process's heap with holes that fit no later block: sizes are
// rounded to a few per octave, and large blocks come from the system and go back to it. Some that were given back last
// are kept for the next call, which would otherwise wait for the system to clear its pages.
#pragma once
#include <cstddef>

namespace tessera {

// 64-byte aligned; null: there is no memory. `cleared`: it is all zeros.
struct BlockOfBytes {
  std::byte* data = nullptr;
  bool cleared = false;
};
[[nodiscard]] BlockOfBytes take_block(size_t bytes) noexcept;
// `bytes`: as it was taken with.
void give_block(std::byte* data, size_t bytes) noexcept;

// Free pages of the heap and blocks that are kept go back to the system. Takes milliseconds where the heap is large.
void return_free_memory() noexcept;

} // namespace tessera
