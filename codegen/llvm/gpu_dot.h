// Products of tiles: on tensor cores, or by a loop of fma. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_ahead.h"
#include "codegen/llvm/gpu_convert.h"

namespace tessera::gpu {

class Dots final : Part {
public:
  Dots(Context& context, Positions& positions, Words& words, SharedMemory& shared, Conversions& conversions,
       const LoadsAhead& ahead)
      : Part(context), positions_(positions), words_(words), shared_(shared), conversions_(conversions), ahead_(ahead) {
  }
  Status dot(const tile::Op& op);

private:
  struct Factor;
  Status on_tensor_cores(const tile::Op& op);
  Status by_fma(const tile::Op& op);
  // Those that have to be moved through shared memory are stored there, behind one barrier.
  Status prepare(const tile::Op& op, std::span<const layout::LinearLayout> layouts, std::vector<Factor>& out);
  Value* word(Factor& factor, size_t pair);

  Positions& positions_;
  Words& words_;
  SharedMemory& shared_;
  Conversions& conversions_;
  const LoadsAhead& ahead_;
};

} // namespace tessera::gpu
