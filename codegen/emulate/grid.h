// Runs the blocks of a launch on the cores of this machine.
#pragma once
#include "codegen/emulate/block.h"
#include "codegen/emulate/emulator.h"

namespace tessera::emu {

// Runs the blocks of the launch's grid, in descending order with an odd seed; the report stays empty. The error is that of the
// first failed block in this order.
[[nodiscard]] Result<EmulateResult> run_grid(const Launch& launch);

} // namespace tessera::emu
