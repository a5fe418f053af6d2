// A product as cuBLASLt computes it: what is prepared once for the products of a class in a plan, and the plan of a call.
#pragma once
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/pinned_arrays.h"
#include <array>
#include <cstring>

namespace tessera::cuda {

// The types of a product: of the left and right matrix, of the result, and what sums and factors are in.
struct ProductTypes {
  cudaDataType_t operand, result, scale;
  cublasComputeType_t compute;
  int64_t operand_bytes, result_bytes;
};

// A factor in the type that the library reads it in.
struct ProductFactor {
  alignas(8) std::array<std::byte, 8> bytes{};
  ProductFactor(double value, cudaDataType_t type) {
    auto put = [&](auto v) { std::memcpy(bytes.data(), &v, sizeof v); };
    if (type == CUDA_R_64F)
      put(value);
    else if (type == CUDA_R_32I)
      put(static_cast<int32_t>(value));
    else
      put(static_cast<float>(value));
  }
};

// ProductDescriptors, destroyed with the plan.
class ProductDescriptors {
public:
  explicit ProductDescriptors(std::shared_ptr<CublasLt> library) : library_(std::move(library)) {}
  ~ProductDescriptors() {
    if (product) library_->cublasLtMatmulDescDestroy(product);
    for (auto* layout : {a, b, c})
      if (layout) library_->cublasLtMatrixLayoutDestroy(layout);
  }
  ProductDescriptors(const ProductDescriptors&) = delete;
  ProductDescriptors& operator=(const ProductDescriptors&) = delete;

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr; // c: of residual and result

private:
  std::shared_ptr<CublasLt> library_;
};

#define TESSERA_CUBLAS_TRY(library, doing, function, ...)                                                              \
  do {                                                                                                                 \
    if (auto tessera_s_ = (library).function(__VA_ARGS__); tessera_s_ != CUBLAS_STATUS_SUCCESS) [[unlikely]]           \
      return (library).error(tessera_s_, #function, doing);                                                            \
  } while (0)

// The parts that products of a class share in one plan.
struct PreparedProduct {
  std::shared_ptr<CublasLt> library;
  ProductTypes types{};
  GemmProblem problem;
  bool by_pointers = false;
  bool bias = false, residual = false; // are part of the call
  std::vector<GemmOffsets> matrices;   // by_pointers: every product's, beyond the base
  int64_t array_bytes = 0, workspace_bytes = 0;
  ProductFactor alpha{1, CUDA_R_32F}, beta{0, CUDA_R_32F};
  CublasLt::Algorithm algorithm{};
  std::unique_ptr<ProductDescriptors> descriptors;
  int calls = 1;
  bool epilogue_done = true;
  mutable std::mutex mutex; // of the descriptor's bias, which a run changes
  // The algorithm is that of sizes near these: queries that for these; true if it is another one. Its kernel is then
  // loaded on the stream, where ProductKernels loads those of such products.
  std::function<bool(CUstream)> query_exactly;
  double query_ms = 0; // duration of such a query, by those before
};

class MatmulPlan final : public CudaLibraryPlan {
public:
  explicit MatmulPlan(Context& context) : context_(context) {}
  std::shared_ptr<PinnedArrays> arrays; // by_pointers

  Status run(CUstream stream, void* const* pointers, void* workspace, bool captured) const override;

  std::string name; // of the call
  std::shared_ptr<const PreparedProduct> product;
  BufferId a_buffer = -1, b_buffer = -1, c_buffer = -1, bias_buffer = -1, residual_buffer = -1;
  int64_t bias_offset = 0, residual_offset = 0;

private:
  Status zero(CUstream stream, void* const* pointers) const;                   // a sum over nothing
  [[nodiscard]] std::string doing() const { return "running '" + name + "'"; } // for errors
  Context& context_;
  mutable std::mutex mutex_; // of what follows: the last run's arrays of addresses
  mutable std::array<std::byte*, 4> bases_{};
  mutable std::vector<std::byte*> addresses_;
  mutable const void* pinned_ = nullptr; // of addresses_; null where there is no room for them
};

} // namespace tessera::cuda
