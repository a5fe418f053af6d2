// Compiles kernels whose function a callback emits. Private to codegen/llvm, and to tests of the intrinsics.
#pragma once
#include "codegen/llvm/emulated_abi.h"
#include "codegen/llvm/gpu_intrinsics.h"

namespace tessera::gpu {

struct EmittedKernel {
  int threads = 0;
  int64_t shared_bytes = 0; // of a block
  std::vector<KernelTensorMap> tensor_maps;
  int cluster = 1; // blocks
};
// Defines the kernel's function in the module, for this kind of code.
using EmitKernel = std::function<Result<EmittedKernel>(llvm::Module&, Code)>;

[[nodiscard]] Result<GpuKernelCode> compile_ptx(const std::string& name, const GpuTarget& target,
                                                const EmitKernel& emit, bool keep_ir);
[[nodiscard]] Result<EmulatedKernel> compile_emulated(const std::string& name, const EmitKernel& emit, bool keep_ir);
// compile_emulated_kernel() with `alter` between emission and optimisation: tests plant faults in generated code.
[[nodiscard]] Result<EmulatedKernel> compile_altered_kernel(const tile::Kernel& kernel, const GpuTarget& target,
                                                            const std::function<void(llvm::Module&)>& alter);

} // namespace tessera::gpu
