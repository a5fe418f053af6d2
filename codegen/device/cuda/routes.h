// Routes of an NVIDIA GPU: cuBLASLt for products, cuDNN for convolutions and pooling, cuDNN or a generated kernel for
// attention, generated kernels for scans, loops for the rest.
#pragma once
#include "codegen/compilation/routes.h"
#include "codegen/device/cuda/libraries.h"

namespace tessera {

// The table refers to `libraries` at every query.
[[nodiscard]] std::shared_ptr<const DeviceRoutes> cuda_routes(std::shared_ptr<const CudaLibraries> libraries);
// Sets all device-dependent options of `fusion` except routes.
void configure_for_cuda(FusionOptions& fusion, const Target& device);

// True if cuBLASLt supports this product.
[[nodiscard]] bool cublaslt_multiplies(const Graph& graph, const Node& node, const CudaLibraries& libraries,
                                       std::string* why_not = nullptr);
// True if cuDNN supports this convolution, except for different pads before and behind, which a pass makes equal.
[[nodiscard]] bool cudnn_convolves(const Graph& graph, const Node& node, const CudaLibraries& libraries,
                                   std::string* why_not = nullptr);
// True if cuDNN has convolutions of this dtype.
[[nodiscard]] bool cudnn_computes_in(DType dtype);
// True if cuDNN supports the attention, as far as known at compile time (the runtime checks sizes).
[[nodiscard]] bool cudnn_takes_attention(const Graph& graph, const AttentionCall& call, const CudaLibraries& libraries,
                                         std::string* why_not = nullptr);
// True if the generated kernel supports it.
[[nodiscard]] bool kernel_takes_attention(const Graph& graph, const AttentionCall& call, const CudaLibraries& libraries,
                                          std::string* why_not = nullptr);

// Attributes of convolutions and pooling.
[[nodiscard]] bool is_channels_last(const Node& node);

} // namespace tessera
