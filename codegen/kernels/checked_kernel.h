// Common code of kernels on each device: a launch is checked, and its arguments become words. Private to codegen/kernels.
#pragma once
#include "codegen/kernels/pack_arguments.h"
#include "codegen/kernels/tile_kernel.h"
#include "runtime/cache/cache.h"

namespace tessera {

class CheckedKernel : public TileKernel {
public:
  [[nodiscard]] Status launch(const Grid& grid, std::span<const KernelArgument> arguments, void* stream) final;

protected:
  // `aligned`: as of ArgumentPacker.
  CheckedKernel(tile::Kernel kernel, bool aligned) : TileKernel(std::move(kernel)), packer_(this->kernel(), aligned) {}
  // `words`: those of the packer, and room for kGridAxes behind them. The grid has programs.
  [[nodiscard]] virtual Status start(const Grid& grid, uint64_t* words, void* stream) = 0;
  [[nodiscard]] const ArgumentPacker& packer() const { return packer_; }
  // The error of a bad index.
  [[nodiscard]] Diagnostic bad_index(const IndexReport& report) const;

private:
  [[nodiscard]] Status check(const Grid& grid) const;

  ArgumentPacker packer_;
};

// Kernels of each device, made of verified tile kernels.
[[nodiscard]] Result<std::unique_ptr<TileKernel>> make_host_kernel(tile::Kernel kernel,
                                                                   const TileKernelOptions& options, Cache& cache);
[[nodiscard]] Result<std::unique_ptr<TileKernel>> make_gpu_kernel(tile::Kernel kernel, const TileKernelOptions& options,
                                                                  Cache& cache);

} // namespace tessera
