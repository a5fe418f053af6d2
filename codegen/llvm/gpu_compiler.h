// Tile kernels to PTX through LLVM, and the same per-thread code to the host for the emulator.
#pragma once
#include "codegen/tile/tile.h"
#include "runtime/tensor_map.h"
#include <functional>

namespace tessera {

// A PTX target. "sm_90" yields PTX that newer GPUs run too; "sm_90a" uses instructions specific to Hopper and runs
// only there.
struct GpuTarget {
  std::string arch = "sm_90"; // validated, because LLVM only warns about an unknown name
  int64_t shared_bytes = 0;   // shared memory that one block may use, in bytes; 0: as the largest target has it
  // Error Usage for a name that is not among those this build generates code for; the message lists them.
  [[nodiscard]] static Result<GpuTarget> parse(std::string_view arch);
  // For a GPU of this compute capability: its own target where there is one, else the newest that it runs. Inline, as a
  // runtime without the compiler asks too.
  [[nodiscard]] static GpuTarget of(int major, int minor) {
    if (major == 9 && minor == 0) return {"sm_90a", 0};
    return {major >= 9 ? "sm_90" : "sm_80", 0};
  }
  // Programmatic dependent launch: kernels of this target wait themselves until the kernel before them in the stream is
  // complete, so that they may be launched before.
  [[nodiscard]] bool dependent_launch() const;
  // Tensor copies and asynchronous products of warpgroups (wgmma).
  [[nodiscard]] bool warpgroups() const;
  // Conversions and tensor cores' products of f8e4m3fn and f8e5m2.
  [[nodiscard]] bool small_floats() const;
};

// Kernel parameters: the tile kernel's in order (pointers to global memory, scalars), then the address of an i32 for
// bounds violations (site + 1; any of them wins), then each tensor map as the driver encodes it, 128 bytes by value,
// aligned to 64. Program p is block p of a one-dimensional grid.
struct GpuKernelCode {
  std::string symbol; // of the .entry: the kernel's name
  std::string ptx;
  std::string llvm_ir;           // if `keep_ir`
  int threads = 0;               // of a block
  int cluster = 1;               // blocks that are launched as a cluster: the grid must be a multiple of it
  int64_t shared_bytes = 0;      // dynamic shared memory of a block; above 48 KB the launch must request it
  bool dependent_launch = false; // as the target has it
  std::vector<KernelTensorMap> tensor_maps;
  // How warpgroups compute products, or why they compute none; empty for a target without warpgroups and for a kernel
  // without products.
  std::string products;
};

// Config of the kernel: "warps" per block (default 4); "min_blocks": resident blocks per multiprocessor, which bounds
// the registers of a thread; "inline_division": 64-bit divisions are inlined; "cluster": programs, from a multiple of it on, that may run
// as a cluster where warpgroups compute products (codegen/layout/warpgroup.h). Tile shapes are powers of two.
// Thread-safe. Errors: CodegenError for operations without GPU code, with the operation.
[[nodiscard]] Result<GpuKernelCode> compile_gpu_kernel(const tile::Kernel& kernel, const GpuTarget& target,
                                                       bool keep_ir = false);
// The version that a tuned schedule is measured with: emitter, layouts, LLVM and target.
[[nodiscard]] std::string gpu_compiler_version(const GpuTarget& target);

} // namespace tessera
