// Named ranges for profilers (NVTX): Nsight Systems and Nsight Compute show them, and select kernels by them.
//
// NVTX is headers; NVIDIA ships what they do as a library, too (libnvtx3interop of pip's nvidia-nvtx, libnvToolsExt of
// CUDA toolkits before 13). It gives ranges to the library that NVTX_INJECTION64_PATH names. The profilers set that
// variable in the programs that they start; without it ranges go nowhere.
#pragma once
#include "runtime/run.h"

namespace tessera::cuda {

// Errors: UnsupportedFeature where the library is nowhere.
[[nodiscard]] Result<std::shared_ptr<RangeMarker>> nvtx_ranges();
// Empty where a profiler receives the ranges, else why none does.
[[nodiscard]] std::string no_range_receiver();

} // namespace tessera::cuda
