// NVIDIA's mathematical functions for devices, as LLVM bitcode: linked into kernels that call them. Private to
// codegen/llvm.
#pragma once
#include "base/result.h"
#include <llvm/IR/Module.h>

namespace tessera::gpu {

// Links the __nv_ functions that the module calls, and their callees, as internal functions. Does nothing for a module
// that calls none.
[[nodiscard]] Status link_libdevice(llvm::Module& module);

} // namespace tessera::gpu
