// Where a thread stands in a layout: positions of what its registers hold, out of the bits of its number. Private to
// codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_context.h"

namespace tessera::gpu {

class Positions final : Part {
public:
  explicit Positions(Context& context) : Part(context) {}

  // i32: the xor of the second numbers over those pairs whose first one is a bit that is set in the thread's number.
  Value* xor_of_bits(std::span<const std::pair<int, int>> bits);
  // i32: the xor of the bases along `out` of the bits that are set in this thread's lane and warp.
  Value* thread_part(const layout::LinearLayout& layout, layout::Dim out);
  // i32: position along `out` of what register `reg` of this thread holds; `part` from thread_part.
  Value* position(const layout::LinearLayout& layout, layout::Dim out, int reg, Value* part);
  // i1: this thread is the one that acts for all that hold the same elements; null where there is but one.
  Value* acts_for_copies(uint32_t free_lanes, uint32_t free_warps);
};

// Bits that thread_part can have.
[[nodiscard]] uint32_t thread_reach(const layout::LinearLayout& layout, layout::Dim out);

} // namespace tessera::gpu
