// Tile kernels by themselves, compiled for a device of this machine.
#include "api/c/opening.h"
#include "api/device.h"

namespace tessera {

Result<std::unique_ptr<TileKernel>> open_kernel(const KernelOpening& opening) {
  TESSERA_ASSIGN(const DeviceChoice choice, choose_device_here(opening.device, DeviceUse::Kernels));
  TileKernelOptions options;
  options.file = opening.file;
  choice.apply(options.compile);
  options.compile.cache_dir = opening.cache_dir;
  options.pool = ThreadPool::create(opening.threads);
  options.gpu = choice.gpu;
  return TileKernel::create(opening.text, std::move(options));
}

} // namespace tessera
