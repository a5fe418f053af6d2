// NVIDIA's assembler as a program: a process a kernel.
#pragma once
#include "runtime/cuda/assembler.h"

namespace tessera::cuda {
// `program`: its path, or empty to look for it.
[[nodiscard]] Result<std::shared_ptr<Assembler>> open_ptxas(const std::string& program = "");
} // namespace tessera::cuda
