// Passes that prepare a graph and a plan for an NVIDIA GPU. Dtypes are unchanged, because every route accumulates f16
// and bf16 in f32. join_products.h has joined and padded products.
#pragma once
#include "codegen/compilation/compilation.h"
#include "codegen/device/cuda/routes.h"

namespace tessera {

// In execution order.
[[nodiscard]] std::vector<CompilePass> cuda_passes();
// The graph passes, for given libraries.
struct CudaRewriting {
  std::string_view name, summary;
  Result<bool> (*run)(Graph&, const CudaLibraries&);
};
[[nodiscard]] const std::vector<CudaRewriting>& cuda_rewritings();

// Attributes of a product whose f32 operands may be rounded to TF32.
[[nodiscard]] inline Attributes tf32_attribute(bool tf32) {
  Attributes a;
  if (tf32) a.set("tf32", int64_t{1});
  return a;
}

// ---- graph passes; each returns whether it changed the graph. widened_products.cpp:
// A product of f16 or bf16 operands that are widened to f32 reads them as they are: it accumulates in f32 anyway, and its
// result is stored in f32 (attribute `wide`).
[[nodiscard]] Result<bool> narrow_products(Graph& graph, const CudaLibraries& libraries);
// small_floats.cpp:
// Numbers of f8e4m3fn and f8e5m2 have these types in kernels, which convert them by instructions, in place of codes.
[[nodiscard]] Result<bool> small_floats(Graph& graph, const CudaLibraries& libraries);
// byte_products.cpp:
// A product of 8-bit floats or integers, less a zero point and times scales that do not vary along its sum, becomes one
// of the 8-bit elements, with what the zero points add and the scales behind it.
[[nodiscard]] Result<bool> byte_products(Graph& graph, const CudaLibraries& libraries);
// convolutions.cpp:
// Marks f32 convolutions and products whose operands may be rounded.
[[nodiscard]] Result<bool> round_to_tf32(Graph& graph, const CudaLibraries& libraries);
// A channels-last convolution with kernel 1, stride 1 and no pads becomes a product of pixels and weights, for
// cuBLASLt; so does one whose kernel is its stride, of few channels, with a copy of the pixels in the order of patches.
[[nodiscard]] Result<bool> points_to_products(Graph& graph, const CudaLibraries& libraries);
// The input of a convolution with different pads before and behind, which cuDNN does not support, is padded explicitly.
[[nodiscard]] Result<bool> even_pads(Graph& graph, const CudaLibraries& libraries);
// Weights of channels-last convolutions get the kernel's memory order: [O, kernel..., C] for cuDNN, [kernel..., C, O]
// for loops; constants at compile time, others by a copy in each call. A transpose restores the dimensions and becomes
// part of the reader's index.
[[nodiscard]] Result<bool> lay_out_weights(Graph& graph, const CudaLibraries& libraries);

// ---- sorts.cpp: sorts become sorts of tiles of so many elements, and merges.
[[nodiscard]] Result<bool> sort_by_tiles(Graph& graph, int64_t tile);

// ---- scatters.cpp: scatters whose targets may repeat become updates in any order; `deterministic`: whose results do not
// depend on it.
[[nodiscard]] Result<bool> scatter_in_any_order(Graph& graph, const Target& device, bool deterministic);

// ---- plan passes. attention.cpp:
// Places each attention: cuDNN's call with the kernel as fallback, either alone, or, without a kernel, cuDNN's call
// with the three original steps as fallback. A kernel is a group of kind Own with an attention and no node.
// `by_kernel`: attentions that a plan file has as the kernel, although the library takes them; empty: none.
[[nodiscard]] bool place_attention(const Graph& graph, const CudaLibraries& libraries, FusionPlan& plan,
                                   const std::function<bool(const Group&)>& by_kernel = {});

} // namespace tessera
