// Loop nests to code objects for an NVIDIA GPU: schedules, tile kernels, PTX, cubins (from the cache, or LLVM and the
// assembler, on all cores). Needs no GPU. Kernels whose texts differ only in names are compiled once.
#pragma once
#include "codegen/compilation/backend.h"
#include "codegen/llvm/gpu_compiler.h"
#include "runtime/cuda/assembler.h"

namespace tessera {

struct GpuKernels {
  // By request, as DeviceCode::kernels. Kernels of the same text share their symbol and object.
  std::vector<std::vector<ScheduledKernel>> kernels;
  std::vector<std::vector<char>> objects; // cuda::encode()d code objects, for Executable::objects
  // By request. `schedule` is the last variant's. Texts hold all variants, each with a heading: its launch condition,
  // registers and spills.
  std::vector<KernelReport> reports;
  std::vector<FailedKernel> failed;        // if there are any, nothing else is valid
  std::vector<ContainedFailure> contained; // schedules and code that others took the place of
  std::vector<std::string> warnings;       // spills, no assembler; each once
  int hits = 0, misses = 0;                // of the cache, by distinct text
  double codegen_ms = 0;
};
struct GpuKernelOptions {
  // The GPU of cubins, if it is not the target: PTX of sm_90 can be assembled for sm_100.
  std::string assemble_for;
  // null: only PTX, which the driver compiles when it is loaded.
  std::shared_ptr<cuda::Assembler> assembler;
};
// Errors: UnsupportedType and CodegenError, with the kernel.
[[nodiscard]] Result<GpuKernels> compile_gpu_kernels(const Graph& graph, std::span<const KernelRequest> requests,
                                                     const Target& device, const GpuTarget& target, Cache& cache,
                                                     const CompileOptions& options, const GpuKernelOptions& gpu = {});

} // namespace tessera
