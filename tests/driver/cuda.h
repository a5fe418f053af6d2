// Helpers that rewrite graphs and query plans as a compile does for a GPU with the given libraries; none is needed.
#pragma once
#include "codegen/device/cuda/passes.h"

namespace tessera::driver_test {

inline Status legalize_for_cuda(Graph& graph, const CudaLibraries& libraries = {}) {
  for (const CudaRewriting& rewriting : cuda_rewritings()) TESSERA_TRY(rewriting.run(graph, libraries));
  return {};
}
inline FusionOptions cuda_fusion(const CudaLibraries& libraries = {}) {
  FusionOptions fusion;
  configure_for_cuda(fusion, CudaLibraries().device);
  set_routes(fusion, cuda_routes(std::make_shared<const CudaLibraries>(libraries)));
  return fusion;
}

} // namespace tessera::driver_test
