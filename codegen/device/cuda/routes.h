// What runs where on an NVIDIA GPU: products by cuBLASLt, convolutions and pooling by cuDNN, attention by cuDNN or a
// kernel of ours, scans by kernels, loops for the rest.
#pragma once
#include "codegen/device/cuda/libraries.h"
#include "codegen/device/routes.h"

namespace tessera {

// The table reads `libraries` when it is asked.
[[nodiscard]] std::shared_ptr<const DeviceRoutes> cuda_routes(std::shared_ptr<const CudaLibraries> libraries);
// Everything in `fusion` that depends on this device but its routes.
void configure_for_cuda(FusionOptions& fusion, const Target& device);

// Whether cuBLASLt multiplies for this product.
[[nodiscard]] bool cublaslt_multiplies(const Graph& graph, const Node& node, const CudaLibraries& libraries,
                                       std::string* why_not = nullptr);
// Whether cuDNN computes this convolution, pads that differ before and behind aside: a pass makes them equal.
[[nodiscard]] bool cudnn_convolves(const Graph& graph, const Node& node, const CudaLibraries& libraries,
                                   std::string* why_not = nullptr);
// Whether cuDNN has convolutions in this dtype.
[[nodiscard]] bool cudnn_computes_in(DType dtype);
// Whether cuDNN takes the attention, as far as it is known when compiling (the runtime looks at the numbers).
[[nodiscard]] bool cudnn_takes_attention(const Graph& graph, const AttentionCall& call, const CudaLibraries& libraries,
                                         std::string* why_not = nullptr);
// Whether the kernel of ours takes it.
[[nodiscard]] bool kernel_takes_attention(const Graph& graph, const AttentionCall& call, const CudaLibraries& libraries,
                                          std::string* why_not = nullptr);

// Of convolutions and pooling.
[[nodiscard]] bool is_channels_last(const Node& node);
[[nodiscard]] bool is_transposed(const Node& node);

} // namespace tessera
