// Passes that prepare a graph and a plan for an NVIDIA GPU. Every dtype stays: sums of f16 and bf16 are in f32 in each
// route. Joined and padded products have a header of their own (join_products.h).
#pragma once
#include "codegen/device/cuda/routes.h"
#include "codegen/driver/pipeline.h"

namespace tessera {

// In the order in which a compile runs them.
[[nodiscard]] std::vector<CompilePass> cuda_passes();
// Those of them that rewrite graphs, as functions of the libraries alone.
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

// ---- graphs; each returns whether it changed something. convolutions.cpp:
// Marks f32 convolutions, and with Tf32::All products, whose operands may be rounded.
[[nodiscard]] Result<bool> round_to_tf32(Graph& graph, const CudaLibraries& libraries);
// A channels-last convolution of single points (kernel 1, stride 1, no pads) becomes what it is, a product of pixels
// and weights: cuBLASLt's.
[[nodiscard]] Result<bool> points_to_products(Graph& graph, const CudaLibraries& libraries);
// A convolution that cuDNN would take but for pads that differ before and behind gets its input padded explicitly.
[[nodiscard]] Result<bool> even_pads(Graph& graph, const CudaLibraries& libraries);
// Weights of channels-last convolutions are laid out as the kernel reads them: [O, kernel..., C] for cuDNN, [kernel...,
// C, O] for loops; constants when compiling, others by a copy in each call. A transpose behind restores the dimensions
// and vanishes into the reader's index.
[[nodiscard]] Result<bool> lay_out_weights(Graph& graph, const CudaLibraries& libraries);

// ---- plans. attention.cpp:
// Of each attention: cuDNN's call with the kernel behind it, either alone, or, where there is no kernel for it, with
// the three steps that were there before. A kernel is a group of kind Own with an attention and no node.
[[nodiscard]] bool place_attention(const Graph& graph, const CudaLibraries& libraries, FusionPlan& plan);

} // namespace tessera
