// A tile kernel as callers use it: its text (docs/tile-ir.md) is read, verified and compiled for the host or for a GPU, and
// launched on memory of the caller's.
//
//   TESSERA_ASSIGN(auto kernel, TileKernel::create(text));
//   TESSERA_TRY(kernel->launch(ceildiv(n, 64), std::array<KernelArgument, 3>{x, y, n}));
#pragma once
#include "codegen/compilation/options.h"
#include "codegen/kernels/argument.h"
#include "codegen/tile/tile.h"
#include "runtime/run.h"

namespace tessera {

struct TileKernelOptions {
  std::string file = "<text>";                // of the text, for messages
  CompileOptions compile;                     // the device with its figures, and the cache folder
  std::shared_ptr<ThreadPool> pool;           // of the host; created when empty
  int gpu = 0;                                // of device "cuda", as the driver counts them
  std::shared_ptr<cuda::Context> gpu_context; // opened when empty
};

// The machine code of a kernel.
struct TileKernelInfo {
  std::string device;                   // "cpu", or the GPU's architecture: "sm_90a"
  int threads = 0;                      // of a block; 0 on the host
  int64_t shared_bytes = 0;             // shared memory of a block
  int registers = -1, spill_bytes = -1; // of a thread of a GPU; -1: unknown
  bool from_cache = false;
  double create_ms = 0; //  reading, compiling and loading
};

class TileKernel {
public:
  // Errors: ParseError, with line and column, for a text that cannot be read or breaks a rule of the tile IR; CodegenError
  // for what has no code on the device; Usage for a device or target that there is not; on a GPU those of
  // cuda::Context::open() and of loading its code; OutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<TileKernel>> create(const std::string& text,
                                                                  TileKernelOptions options = {});
  virtual ~TileKernel() = default;
  TileKernel(const TileKernel&) = delete;
  TileKernel& operator=(const TileKernel&) = delete;

  [[nodiscard]] const tile::Kernel& kernel() const { return kernel_; }
  [[nodiscard]] const TileKernelInfo& info() const { return info_; }
  // Runs the programs of the grid; a grid with an extent of 0 runs none. The arguments are those of kernel().params in
  // their order; memory is of the device, and lives until the programs have ended. On the host they have when this
  // returns; on a GPU they are put on `stream`, a CUstream of its primary context (null: the default stream), which may be
  // captured. Any thread may launch at any time.
  //
  // Errors: BadInput for arguments that the parameters do not take (pack_arguments.h), for a grid of less than 0 or more
  // than kMaxGrid programs along an axis, and for a bad index that a program reports, on a GPU that of
  // an earlier launch; OutOfMemory; DeviceError.
  [[nodiscard]] virtual Status launch(const Grid& grid, std::span<const KernelArgument> arguments,
                                      void* stream = nullptr) = 0;

protected:
  explicit TileKernel(tile::Kernel kernel) : kernel_(std::move(kernel)) {}
  TileKernelInfo info_;

private:
  tile::Kernel kernel_;
};

} // namespace tessera
