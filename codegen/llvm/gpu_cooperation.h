// Cooperative programs: arrival, grid barrier, exchange of partial results (codegen/tile/cooperation.h). Private to
// codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_accesses.h"

namespace tessera::gpu {

class Cooperation final : Part {
public:
  Cooperation(Context& context, Positions& positions, SharedMemory& shared, Accesses& accesses)
      : Part(context), positions_(positions), shared_(shared), accesses_(accesses) {}
  Status arrive(const tile::Op& op); // Arrive and GridBarrier
  Status exchange(const tile::Op& op);

private:
  Result<Value*> known_by_all(Value* acts, Value* predicate);

  Positions& positions_;
  SharedMemory& shared_;
  Accesses& accesses_;
};

} // namespace tessera::gpu
