#pragma once
#include <llvm/IR/Function.h>

namespace tessera::gpu {

// Name of the pass in a pipeline's text.
inline constexpr const char* kAvoidFaults = "avoid-faults";
// Replaces operations for which LLVM's NVPTX backend or ptxas make wrong code by equal ones; true if there were any.
// It comes after the passes that would bring them back.
bool avoid_faults(llvm::Function& function);

} // namespace tessera::gpu
