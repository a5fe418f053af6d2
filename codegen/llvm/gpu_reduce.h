// Reductions and scans among registers, lanes and warps. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_positions.h"
#include "codegen/llvm/gpu_shared.h"

namespace tessera::gpu {

class Reductions final : Part {
public:
  Reductions(Context& context, Positions& positions, SharedMemory& shared)
      : Part(context), positions_(positions), shared_(shared) {}
  Status reduce(const tile::Op& op);
  Status scan(const tile::Op& op);

private:
  Positions& positions_;
  SharedMemory& shared_;
};

} // namespace tessera::gpu
