// Loop nests to linked machine code of the host: schedule, tile kernel, object (from the cache or LLVM, on all cores),
// link. Kernels whose text is the same but for the name are compiled once: the layers of a model share their code.
#pragma once
#include "codegen/compilation/backend.h"
#include "codegen/llvm/host_compiler.h"

namespace tessera {

struct LinkedKernels {
  std::vector<ScheduledKernel> kernels; // by request; the code of kernels of the same text is shared
  std::vector<CompiledObject> objects;
  std::shared_ptr<const HostCode> module;
  std::vector<KernelReport> reports;       // by request
  std::vector<FailedKernel> failed;        // if there are any, nothing else is valid
  std::vector<ContainedFailure> contained; // schedules and code that others took the place of
  int hits = 0, misses = 0;
  double codegen_ms = 0, link_ms = 0;
};
[[nodiscard]] Result<LinkedKernels> compile_host_kernels(const Graph& graph, std::span<const KernelRequest> requests,
                                                         const Target& device, const HostTarget& target, Cache& cache,
                                                         const CompileOptions& options);

} // namespace tessera
