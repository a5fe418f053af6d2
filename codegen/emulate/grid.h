// Runs the blocks of a launch on the cores of this machine.
#pragma once
#include "codegen/emulate/cluster.h"
#include "codegen/emulate/emulator.h"

namespace tessera::emu {

// Runs the blocks of the launch's grid, a cluster at a time, in descending order of clusters with an odd seed; the report stays
// empty. The error is that of the first failed cluster in this order. Error BadInput for a grid that is no multiple of the
// cluster along x.
[[nodiscard]] Result<EmulateResult> run_grid(const Launch& launch);

} // namespace tessera::emu
