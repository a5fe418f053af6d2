// Loop nests to code objects for an NVIDIA GPU: schedules, tile kernels, PTX, cubins (from the cache, or LLVM and the
// assembler, on all cores). Needs no GPU. Kernels whose texts differ only in names are compiled once.
#pragma once
#include "codegen/compilation/backend.h"
#include "codegen/llvm/gpu_compiler.h"
#include "runtime/cuda/assembler.h"
#include "runtime/cuda/code_object.h"
#include <functional>

namespace tessera {

struct GpuKernelOptions {
  // The GPU of cubins, if it is not the target: PTX of sm_90 can be assembled for sm_100.
  std::string assemble_for;
  // null: only PTX, which the driver compiles when it is loaded.
  std::shared_ptr<cuda::Assembler> assembler;
  // An assembler for kernels whose warps divide registers among them, where `assembler` does not take these. It is looked for
  // when there is such a kernel; null then: only PTX.
  std::function<const cuda::Assembler*()> whole_programs = [] { return nullptr; };
  [[nodiscard]] const cuda::Assembler* assembler_of(const cuda::CodeObject& object) const;
};
// Objects are cuda::encode()d. In the texts of a report, each kernel has a heading: its launch condition, registers and
// spills. Errors: UnsupportedType and CodegenError, with the kernel.
[[nodiscard]] Result<DeviceCode> compile_gpu_kernels(const Graph& graph, std::span<const KernelRequest> requests,
                                                     const Target& device, const GpuTarget& target, Cache& cache,
                                                     const CompileOptions& options, const GpuKernelOptions& gpu = {});

} // namespace tessera
