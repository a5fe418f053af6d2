// What a device can run, and the rewriting of what it can run another way.
#pragma once
#include "codegen/driver/compile.h"
#include "codegen/target/select.h"
#include "fusion/plan.h"
#include <set>

namespace tessera {

// ---- the host
// Products and convolutions in f16 and bf16 become f32 ones: operands are cast where they are produced (the cast
// vanishes into the producing kernel; constant weights stay what they are: FusionOptions::half_weights), results are
// cast back. f64 and integer ones are left to generated loops.
[[nodiscard]] Status legalize_for_host(Graph& graph);

// Whether a node runs natively: a nest whose dtypes generated code can hold, or a library call; otherwise it runs by
// its reference on the host, and `why_not` says for what reason.
[[nodiscard]] bool host_supports(const Graph& graph, NodeId node, std::string* why_not);
// Which products, convolutions and pooling are generated loops (FusionOptions::as_loops): those the host libraries do
// not take, f64, integers and other numbers of spatial dimensions.
[[nodiscard]] bool host_as_loops(const Graph& graph, NodeId node);

// ---- NVIDIA GPUs
// Attributes of a product whose f32 operands may be rounded to TF32.
[[nodiscard]] inline Attributes tf32_attribute(bool tf32) {
  Attributes a;
  if (tf32) a.set("tf32", int64_t{1});
  return a;
}
// What the executable may count on where it runs, and what of it is wanted.
struct CudaLibraries {
  bool cublaslt = true, cudnn = true; // without one, what it would do becomes generated loops
  // Whether a convolution of single points (kernel 1, stride 1, no pads) with its channels last is what it is, a
  // product of pixels and weights: cuBLASLt's.
  bool single_points_are_products = true;
  Tf32 tf32 = Tf32::Conv;         // as CompileOptions::tf32
  std::set<std::string> as_loops; // as CompileOptions::as_loops
  // Activations for which cuDNN compiles a kernel when a plan is made (a second or so each); otherwise pointwise
  // kernels.
  bool runtime_compiled = false;
  // Whether cuDNN computes attention as one unit: q k', softmax and the product with v, scores in no memory.
  bool attention = true;
  // The same by a kernel of ours, in place of three steps: where cuDNN does not take it, or is not there.
  bool attention_kernel = true;
  Target device = shipped_target("h200"); // whose figures decide
};
// Every dtype stays (sums of f16 and bf16 are in f32 in each route). What is rewritten:
//   - a channels-last convolution of single points becomes a product
//   - a convolution whose pads differ before and behind gets its input padded explicitly where cuDNN computes it
//   - weights of channels-last convolutions are laid out as the kernel reads them: [O, kernel..., C] for cuDNN,
//     [kernel..., C, O] for loops; constants when compiling, others by a copy in each call; a transpose behind restores
//     the dimensions and vanishes into the reader's index
//   - products of one operand with constant weights become one (join_products.h)
[[nodiscard]] Status legalize_for_cuda(Graph& graph, const CudaLibraries& libraries);
// As host_supports. What runs as loops counts as supported.
[[nodiscard]] bool cuda_supports(const Graph& graph, NodeId node, std::string* why_not);
// FusionOptions::as_loops: what neither library takes.
[[nodiscard]] bool cuda_as_loops(const Graph& graph, NodeId node, const CudaLibraries& libraries);
// FusionOptions::library_accepts: operands and results whose strides the library can address, and epilogues it has.
[[nodiscard]] bool cuda_library_accepts(const Graph& graph, const LibraryCall& call, const CudaLibraries& libraries,
                                        std::string* why_not);
// FusionOptions::attention_accepts: what cuDNN takes, as far as it is known when compiling (the runtime looks at the
// numbers), or a kernel of ours (attention_cuda.cpp).
[[nodiscard]] bool cudnn_takes_attention(const Graph& graph, const AttentionCall& call, std::string* why_not);
[[nodiscard]] bool cuda_takes_attention(const Graph& graph, const AttentionCall& call, const CudaLibraries& libraries,
                                        std::string* why_not);
// Of each attention in the plan: cuDNN's call with the kernel behind it, either alone, or, where there is no kernel for
// it, with the three steps that were there before. A kernel is a group of kind Own with an attention and no node.
void place_attention(const Graph& graph, const CudaLibraries& libraries, FusionPlan& plan);
// Sets everything in `fusion` that depends on this device's libraries.
void configure_for_cuda(FusionOptions& fusion, const CudaLibraries& libraries);

} // namespace tessera
