// Reads the output of ptxas, alone or inside of nvJitLink: resources of a kernel, errors with the lines they speak of.
#pragma once
#include "runtime/cuda/assembler.h"

namespace tessera::cuda {

// "sm_90", "sm_90a", "sm_100f": anything else is no architecture. Error Usage.
[[nodiscard]] Status check_arch(const std::string& arch);

// Takes registers, spills, stack and shared memory from the lines of -v into `cubin`.
void read_resources(const std::string& log, Cubin& cubin);

// Why a kernel whose assembling printed this must not be used although a cubin came out: serialised wgmma. Empty if
// there is nothing.
[[nodiscard]] std::string refused_by_log(const std::string& log);

// An error with the first line of the log that is one as message, and the lines of the PTX that the log names as notes.
[[nodiscard]] Diagnostic assembling_failed(const std::string& assembler, const std::string& arch,
                                           const std::string& log, const std::string& ptx);

} // namespace tessera::cuda
