// How a product is described to cuBLASLt: its types, epilogue, alignments and descriptors, and the key of its choice.
#pragma once
#include "runtime/cuda/cublaslt_product.h"
#include "runtime/cuda/gemm_sizes.h"

namespace tessera::cuda {

inline constexpr int64_t kProductAlignment = 256; // bytes: of workspaces, and the most that heuristics request

// Types of a product of such operands; nothing where the library has none.
[[nodiscard]] std::optional<ProductTypes> product_types(DType operand, DType result, bool tf32);

class ProductForm {
public:
  // All are kept by reference. `operands`: as of plan_cuda_matmul.
  ProductForm(const MatmulCall& call, std::span<const Operand> operands);

protected:
  // nullopt where the library does not compute it; `why` says so.
  [[nodiscard]] std::optional<cublasLtEpilogue_t> epilogue_of(const LibraryEpilogue& e, std::string* why) const;
  struct Alignments {
    uint32_t a, b, c, d, bias; // bytes
  };
  [[nodiscard]] Alignments alignments(bool fused, bool pointers) const;
  // All that an algorithm depends on; also what errors say.
  [[nodiscard]] std::string key(const GemmProblem& problem, bool fused, bool pointers) const;
  [[nodiscard]] static int64_t matrices(const GemmProblem& problem, bool pointers);
  // The call's product in the library's terms, of these sizes; nothing where it has no words for it.
  [[nodiscard]] Result<std::unique_ptr<ProductDescriptors>> describe(const GemmProblem& problem, bool fused,
                                                                     bool pointers, const std::string& doing) const;
  // Which sizes of the product differ from call to call.
  [[nodiscard]] VaryingSizes varying(bool swapped) const;

  const MatmulCall& call_;
  std::span<const Operand> operands_;
  const Operand *bias_ = nullptr, *residual_ = nullptr; // of operands_
  std::shared_ptr<CublasLt> library_;
  ProductTypes types_{};
  GemmProblem problem_;

private:
  template <class F>
  [[nodiscard]] uint32_t alignment(int64_t base, int64_t batch_stride, int64_t bytes, bool pointers, F of) const;
};

} // namespace tessera::cuda
