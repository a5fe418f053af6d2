// The blocks of a launch, spread over the processors of this machine.
#pragma once
#include "codegen/emulate/block.h"
#include "codegen/emulate/emulator.h"

namespace tessera::emu {

// Runs blocks [0, grid), the last one first with an odd seed; reported_sites stay empty. The error is that of the first
// block in this order that has one.
[[nodiscard]] Result<EmulateResult> run_grid(const Launch& launch, int64_t grid);

} // namespace tessera::emu
