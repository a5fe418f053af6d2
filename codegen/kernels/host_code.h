// Machine code of the host for one tile kernel. Private to codegen/kernels.
#pragma once
#include "codegen/tile/tile.h"
#include "runtime/cache/cache.h"
#include "runtime/host_code.h"

namespace tessera {

struct LinkedKernel {
  std::shared_ptr<const HostCode> code; // owner of the function
  HostKernelFn function = nullptr;
  bool from_cache = false;
};
// From the cache, where an entry for the text and this compiler and machine is there and links; else compiled, and
// stored. Errors: CodegenError; those of HostCode::load.
[[nodiscard]] Result<LinkedKernel> linked_kernel(const tile::Kernel& kernel, Cache& cache);

} // namespace tessera
