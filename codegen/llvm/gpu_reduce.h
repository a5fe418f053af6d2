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
  struct Folded;
  [[nodiscard]] std::optional<int64_t> even_stride(tile::ValueId id, int axis) const;
  Value* identity(ReduceKind kind, DType dtype);

  Positions& positions_;
  SharedMemory& shared_;
};

} // namespace tessera::gpu
