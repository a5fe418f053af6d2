// The interface between the executor and the library calls of an NVIDIA GPU: like runtime/library/call.h, a call is
// planned once per shape (algorithm, descriptors) and then put on a stream many times without a decision or an
// allocation.
#pragma once
#include "runtime/cuda/context.h"
#include "runtime/library/call.h"
#include <functional>
#include <span>

namespace tessera::cuda {

// A plan may be destroyed while what it has put on a stream still runs: it owns no memory that the GPU uses.
class CudaLibraryPlan {
public:
  virtual ~CudaLibraryPlan() = default;
  // Puts the call on the stream and returns; the context is current. `pointers` are device addresses by BufferId (an
  // operand's offset is the plan's to add), each aligned to 16 bytes or more; `workspace` has workspace_bytes, aligned
  // to 256 and shared with the steps before and after on the same stream. What it puts there depends on these alone and
  // may be part of a CUDA graph (replay.h): memory of the host that it reads later stays as it is. `captured`: into a
  // graph of the caller, which outlives the plan. Does not synchronise. Errors: DeviceError, OutOfMemory.
  [[nodiscard]] virtual Status run(CUstream stream, void* const* pointers, void* workspace, bool captured) const = 0;
  // The objects that a graph of the caller with the call in it needs as long as it can run; may be null.
  [[nodiscard]] virtual std::shared_ptr<const void> used_by_graphs() const { return nullptr; }

  int64_t workspace_bytes = 0;
  int calls = 1; // of the library in one run: batches that it takes only singly repeat the call
  // The call computes its `fused` epilogue. False where it has one that the library refused at these sizes: the result
  // is then the raw one, and the executor runs the call's EpilogueKernel over it.
  bool epilogue_done = true;
};

// Operands in the order of operands_of() (runtime/variant.h): a, b, c or x, w, y or x, y; then the fused epilogue's
// bias and residual, those of them that there are. `name`: of the step, for errors. The context is current. Errors:
// UnsupportedFeature (a library is missing, or what it cannot take), OutOfMemory, DeviceError, Internal where shapes
// contradict.
struct PreparedProduct; // cublaslt_product.h
class ProductKernels;   // product_kernels.h
// Products of one plan by class (library_classes.h): the layers of a model prepare each of theirs once. Null: none yet,
// or the class has no product.
using PreparedProducts = std::vector<std::shared_ptr<const PreparedProduct>>;
struct CudaPlanContext {
  Context& context;
  const std::string& name;
  bool can_finish = false; // there is an EpilogueKernel to run where the library refuses the fused epilogue
  bool exactly = false;    // choices are for these very sizes, not for those of the grid (gemm_sizes.h)
  std::shared_ptr<const PreparedProduct>* product = nullptr; // of the call's class; made where it is null
  ProductKernels* kernels = nullptr;                         // null: nothing is done in the background
  bool loads_ahead = false;                                  // kernels of other sizes are loaded there
};
[[nodiscard]] Result<std::unique_ptr<CudaLibraryPlan>>
plan_cuda_matmul(const CudaPlanContext& context, const MatmulCall& call, std::span<const Operand> operands);
// The improvement of products that are computed by the algorithms of sizes near theirs: `begin` requests theirs from
// the library, in the background where there is one, which pays when calls have taken `ms`. False: not now. `outdated`:
// one is another, and the plan is to be made again. Nothing where there are no such products.
struct ProductImprovement {
  std::function<bool()> begin, outdated;
  double ms = 0;
};
[[nodiscard]] std::optional<ProductImprovement> improvement_of(const PreparedProducts& products,
                                                               ProductKernels* kernels);
[[nodiscard]] Result<std::unique_ptr<CudaLibraryPlan>>
plan_cuda_conv(const CudaPlanContext& context, const ConvCall& call, std::span<const Operand> operands);
[[nodiscard]] Result<std::unique_ptr<CudaLibraryPlan>>
plan_cuda_pool(const CudaPlanContext& context, const PoolCall& call, std::span<const Operand> operands);

[[nodiscard]] Result<std::unique_ptr<CudaLibraryPlan>>
plan_cuda_attention(const CudaPlanContext& context, const FusedAttentionCall& call, std::span<const Operand> operands);

// Whether the library computes an attention at these sizes, or the steps that follow it do; they are `by_a_kernel`.
// `wait`: until it is known.
struct AttentionChoice {
  bool taken = false; // by the library: plan_cuda_attention() succeeds
  std::string why;    // not taken: for logs
  // Not taken yet: begins to make its plan, in the background, which takes about so long. Once it has been called,
  // `made` is true when that is done, and choosing again pays.
  std::function<void()> make;
  std::function<double()> make_ms;
  std::function<bool()> made;
};
[[nodiscard]] AttentionChoice choose_attention(Context& context, const std::string& name,
                                               const FusedAttentionCall& call, std::span<const Operand> operands,
                                               bool by_a_kernel, bool wait);
// Until no plan is being made.
void wait_for_attention(Context& context);
// Gives up plans that have not been begun, and waits for the one that has.
void finish_attention(Context& context);

} // namespace tessera::cuda
