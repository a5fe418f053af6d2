// Products of tiles: on tensor cores, or by a loop of fma. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_convert.h"
#include "codegen/llvm/gpu_pipeline.h"

namespace tessera::gpu {

class Dots final : Part {
public:
  Dots(Context& context, Positions& positions, Words& words, SharedMemory& shared, Conversions& conversions,
       const Pipelining& loads)
      : Part(context), positions_(positions), words_(words), shared_(shared), conversions_(conversions),
        pipelining_(loads) {}
  Status dot(const tile::Op& op);

private:
  struct Factor;
  Status on_tensor_cores(const tile::Op& op);
  Status by_fma(const tile::Op& op);
  // Stores operands that move through shared memory, followed by one barrier.
  Status prepare(const tile::Op& op, std::span<const layout::LinearLayout> layouts, std::vector<Factor>& out);
  Value* word(Factor& factor, size_t reg); // the 32 bits that begin with this register

  Positions& positions_;
  Words& words_;
  SharedMemory& shared_;
  Conversions& conversions_;
  const Pipelining& pipelining_;
};

} // namespace tessera::gpu
