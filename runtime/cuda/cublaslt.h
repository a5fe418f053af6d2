// cuBLASLt as a table of functions, a handle per context, and the algorithms that its heuristics chose. Products on a
// GPU (library.h, plan_cuda_matmul) are planned in cublaslt_plan.cpp.
//
// Types: f32 (in TF32 where MatmulCall::tf32 allows it), f16 and bf16 with sums and epilogue in f32, f64, and i8 with
// i32 results. The epilogue of MatmulCall::fused is the library's: bias along the dense dimension of the result,
// residual as beta * C, ReLU, GELU by tanh. Where the library has no algorithm with that epilogue, and an
// EpilogueKernel can finish, the product is planned without. A product over nothing (k = 0) is a memset.
//
// Sizes that vary from call to call do not each query the heuristics: a product takes the algorithm of the smallest size
// of a grid (gemm_sizes.h) that is not below its own, where the library allows it there. So what a product of some sizes
// computes does not depend on the sizes that came before it. The heuristics' answers are kept for later processes
// (library_choices.h), which compute the same with the same cache folder.
//
// Batches that have no single stride (library_gemm.h) are given as arrays of addresses to libraries of version 13 and
// later, which have a mode for that; else, or where there is no algorithm for it, the call is repeated.
#pragma once
#include "runtime/cuda/dynamic_library.h"
#include "runtime/cuda/library.h"
#include "runtime/cuda/library_gemm.h"
#include <cublasLt.h>
#include <mutex>
#include <unordered_map>

namespace tessera::cuda {

#define TESSERA_CUBLASLT_FUNCTIONS(X)                                                                                  \
  X(cublasLtCreate)                                                                                                    \
  X(cublasLtDestroy)                                                                                                   \
  X(cublasLtGetVersion)                                                                                                \
  X(cublasLtMatmul)                                                                                                    \
  X(cublasLtMatmulAlgoCheck)                                                                                           \
  X(cublasLtMatmulAlgoGetHeuristic)                                                                                    \
  X(cublasLtMatmulDescCreate)                                                                                          \
  X(cublasLtMatmulDescDestroy)                                                                                         \
  X(cublasLtMatmulDescSetAttribute)                                                                                    \
  X(cublasLtMatrixLayoutCreate)                                                                                        \
  X(cublasLtMatrixLayoutDestroy)                                                                                       \
  X(cublasLtMatrixLayoutSetAttribute)                                                                                  \
  X(cublasLtMatmulPreferenceCreate)                                                                                    \
  X(cublasLtMatmulPreferenceDestroy)                                                                                   \
  X(cublasLtMatmulPreferenceSetAttribute)

// How products are computed; of the process, read when the library is opened. TESSERA_GEMM_POINTERS=0: batches without
// a single stride repeat the call.
struct GemmOptions {
  bool pointer_arrays = true;
  [[nodiscard]] static GemmOptions from_environment();
};

class CublasLt {
public:
  static constexpr const char* kAttachment = "cuBLASLt";
  // That of the context, opened at the first request. Errors: UnsupportedFeature where the library is missing or
  // too old (11.6 at least); DeviceError where it does not start.
  [[nodiscard]] static Result<std::shared_ptr<CublasLt>> of(Context& context);
  // The functions alone: descriptors can be made without a GPU.
  [[nodiscard]] static Result<std::shared_ptr<CublasLt>> open();
  // An empty table, for tests that fill it themselves and attach it to a context as "cuBLASLt".
  CublasLt() = default;
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

#define TESSERA_CUBLASLT_FIELD(function) decltype(&::function) function = nullptr;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_CUBLASLT_FIELD)
#undef TESSERA_CUBLASLT_FIELD
  size_t version = 0; // 130000 is 13.0.0
  GemmOptions options;
  cublasLtHandle_t handle = nullptr;

  // The best algorithm for a problem, from memory after the first query (`key` says all that the choice depends on).
  // nullopt where the library has none. The memory is emptied when it has kMaxAlgorithms.
  static constexpr size_t kMaxAlgorithms = 16384; // 4 MB
  struct Algorithm {
    cublasLtMatmulAlgo_t algo;
    int64_t workspace_bytes = 0;
  };
  [[nodiscard]] Result<std::optional<Algorithm>>
  algorithm(const std::string& key, const std::function<Result<std::optional<Algorithm>>()>& query);
  [[nodiscard]] bool knows(const std::string& key) const; // algorithm() needs no query
  void took(double ms);                                   // a query
  [[nodiscard]] double mean_ms() const;                   // of a query; 0 before the first
  // An answer of the heuristics as the bytes that LibraryChoices keeps, and back: nothing where the bytes are no answer.
  [[nodiscard]] static std::string bytes_of(const std::optional<Algorithm>& answer);
  [[nodiscard]] static std::optional<std::optional<Algorithm>> answer_of(std::string_view bytes);
  [[nodiscard]] std::string name() const; // with its version: "cuBLASLt 13.0.2"
  // DeviceError with the library's name of the status; OutOfMemory for CUBLAS_STATUS_ALLOC_FAILED.
  [[nodiscard]] Diagnostic error(cublasStatus_t status, const char* function, const std::string& doing) const;

private:
  std::shared_ptr<const DynamicLibrary> library_;
  mutable std::mutex mutex_; // of what follows
  std::unordered_map<std::string, std::optional<Algorithm>> algorithms_;
  int64_t queries_ = 0;
  double queries_ms_ = 0;
};

} // namespace tessera::cuda
