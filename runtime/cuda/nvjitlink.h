// NVIDIA's library that assembles in this process; a 100 MB file, loaded in some milliseconds.
#pragma once
#include "runtime/cuda/assembler.h"

namespace tessera::cuda {
[[nodiscard]] Result<std::shared_ptr<Assembler>> open_nvjitlink();
} // namespace tessera::cuda
