// Reads resources of kernels from a cubin, an ELF file. Assemblers may report nothing: nvJitLink 13.0 takes the option,
// and prints no line about resources.
#pragma once
#include "runtime/cuda/assembler.h"

namespace tessera::cuda {

// Sets registers, stack_bytes and spill_bytes that are -1 in `cubin`, which was made of `ptx`, from its bytes, and
// leaves them where the bytes cannot be read. What of the stack the PTX does not declare itself (as sine's table for
// large arguments) counts as spilled; it is a multiple of 8 bytes.
void read_missing_resources(const std::string& ptx, Cubin& cubin);

} // namespace tessera::cuda
