// Programs that meet, and that exchange numbers (codegen/tile/team.h). Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_accesses.h"

namespace tessera::gpu {

class Team final : Part {
public:
  Team(Context& context, Positions& positions, SharedMemory& shared, Accesses& accesses)
      : Part(context), positions_(positions), shared_(shared), accesses_(accesses) {}
  Status meet(const tile::Op& op); // Arrive, too
  Status exchange(const tile::Op& op);

private:
  Positions& positions_;
  SharedMemory& shared_;
  Accesses& accesses_;
};

} // namespace tessera::gpu
