// Loop nests to linked machine code of the host: schedule, tile kernel, object (from the cache or LLVM, on all cores),
// link. Kernels whose text is the same but for the name are compiled once: the layers of a model share their code.
#pragma once
#include "codegen/compilation/backend.h"
#include "codegen/llvm/host_compiler.h"

namespace tessera {

// Each request has one kernel, for every size, with its function.
[[nodiscard]] Result<DeviceCode> compile_host_kernels(const Graph& graph, std::span<const KernelRequest> requests,
                                                      const Target& device, const HostTarget& target, Cache& cache,
                                                      const CompileOptions& options);

} // namespace tessera
