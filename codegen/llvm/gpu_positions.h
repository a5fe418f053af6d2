// Coordinates of the elements that a thread holds, computed from the bits of its index. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_context.h"

namespace tessera::gpu {

class Positions final : Part {
public:
  explicit Positions(Context& context) : Part(context) {}

  // i32: xor of the second numbers of those pairs whose first number is a set bit of the thread's index.
  Value* xor_of_bits(std::span<const std::pair<int, int>> bits);
  // i32: xor of the bases along `out` of the set bits of this thread's lane and warp.
  Value* thread_part(const layout::LinearLayout& layout, layout::Dim out);
  // i32: coordinate along `out` of the element in register `reg` of this thread; `part` from thread_part.
  Value* position(const layout::LinearLayout& layout, layout::Dim out, int reg, Value* part);
  // i1: this thread acts for all threads that hold the same elements; null if only one holds them.
  Value* acts_for_copies(uint32_t free_lanes, uint32_t free_warps);
};

// The bits that thread_part can set.
[[nodiscard]] uint32_t thread_reach(const layout::LinearLayout& layout, layout::Dim out);

} // namespace tessera::gpu
