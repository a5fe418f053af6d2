#include "tests/cuda/fake_cublaslt.h"
#include "runtime/cuda/library_choices.h"
#include <cmath>
#include <cstring>

namespace tessera::cuda::test::fake_cublaslt {
namespace {

struct Layout {
  cudaDataType_t type;
  int64_t rows, cols, ld, stride = 0;
  int32_t batch = 1;
  bool pointers = false;
};
struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};

Library* library = nullptr;

Layout* of(cublasLtMatrixLayout_t x) { return reinterpret_cast<Layout*>(x); }
Product* of(cublasLtMatmulDesc_t x) { return reinterpret_cast<Product*>(x); }

double element(cudaDataType_t type, const std::byte* base, int64_t i) {
  switch (type) {
  case CUDA_R_16F: return f16_to_f32(reinterpret_cast<const uint16_t*>(base)[i]);
  case CUDA_R_16BF: return bf16_to_f32(reinterpret_cast<const uint16_t*>(base)[i]);
  case CUDA_R_32F: return reinterpret_cast<const float*>(base)[i];
  case CUDA_R_64F: return reinterpret_cast<const double*>(base)[i];
  default: ADD_FAILURE() << "a type that the tests do not use"; return 0;
  }
}
void put(cudaDataType_t type, std::byte* base, int64_t i, double value) {
  switch (type) {
  case CUDA_R_16F: reinterpret_cast<uint16_t*>(base)[i] = f32_to_f16(static_cast<float>(value)); break;
  case CUDA_R_16BF: reinterpret_cast<uint16_t*>(base)[i] = f32_to_bf16(static_cast<float>(value)); break;
  case CUDA_R_32F: reinterpret_cast<float*>(base)[i] = static_cast<float>(value); break;
  case CUDA_R_64F: reinterpret_cast<double*>(base)[i] = value; break;
  default: ADD_FAILURE() << "a type that the tests do not use";
  }
}

cublasStatus_t multiply(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                        cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb, const void* beta,
                        const void* c, cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                        const cublasLtMatmulAlgo_t* algo, void*, size_t, cudaStream_t) {
  const std::lock_guard lock(library->mutex);
  library->gpu.run_all();
  ++library->calls;
  library->algorithms.push_back(algo->data[0]);
  const Product& p = *of(desc);
  const Layout &A = *of(la), &B = *of(lb), &C = *of(lc), &D = *of(ld);
  auto factor = [&](const void* x) {
    return p.scale == CUDA_R_64F ? *static_cast<const double*>(x) : *static_cast<const float*>(x);
  };
  auto matrix = [](const void* base, const Layout& l, int64_t i, size_t bytes) -> const std::byte* {
    if (l.pointers) return static_cast<const std::byte* const*>(base)[i];
    return static_cast<const std::byte*>(base) + i * l.stride * static_cast<int64_t>(bytes);
  };
  auto bytes = [](cudaDataType_t t) { return size_t{t == CUDA_R_64F ? 8u : t == CUDA_R_32F ? 4u : 2u}; };
  int64_t m = D.rows, n = D.cols, k = p.a == CUBLAS_OP_N ? A.cols : A.rows;
  for (int32_t i = 0; i < D.batch; ++i) {
    const auto *pa = matrix(a, A, i, bytes(A.type)), *pb = matrix(b, B, i, bytes(B.type)),
               *pc = matrix(c, C, i, bytes(C.type));
    auto* pd = const_cast<std::byte*>(matrix(d, D, i, bytes(D.type)));
    for (int64_t col = 0; col < n; ++col)
      for (int64_t row = 0; row < m; ++row) {
        double sum = 0;
        for (int64_t x = 0; x < k; ++x)
          sum += element(A.type, pa, p.a == CUBLAS_OP_N ? row + x * A.ld : x + row * A.ld) *
                 element(B.type, pb, p.b == CUBLAS_OP_N ? x + col * B.ld : col + x * B.ld);
        sum *= factor(alpha);
        if (factor(beta) != 0) sum += factor(beta) * element(C.type, pc, row + col * C.ld);
        if (p.epilogue & CUBLASLT_EPILOGUE_BIAS) sum += element(D.type, static_cast<const std::byte*>(p.bias), row);
        if (p.epilogue & CUBLASLT_EPILOGUE_RELU) sum = std::max(sum, 0.0);
        if (p.epilogue & CUBLASLT_EPILOGUE_GELU)
          sum = 0.5 * sum * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
        put(D.type, pd, row + col * D.ld, sum);
      }
  }
  return CUBLAS_STATUS_SUCCESS;
}

} // namespace

Machine::Machine(const std::shared_ptr<Cache>& cache, size_t version) {
  library = &state;
  CublasLt& t = *lt;
  t.version = version;
  t.options = {};
  t.cublasLtMatrixLayoutCreate = [](cublasLtMatrixLayout_t* out, cudaDataType type, uint64_t rows, uint64_t cols,
                                    int64_t ld) {
    ++library->live;
    *out = reinterpret_cast<cublasLtMatrixLayout_t>(
        new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld});
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatrixLayoutDestroy = [](cublasLtMatrixLayout_t x) {
    --library->live;
    delete of(x);
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatrixLayoutSetAttribute = [](cublasLtMatrixLayout_t x, cublasLtMatrixLayoutAttribute_t what,
                                          const void* value, size_t size) {
    if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && size == 4)
      std::memcpy(&of(x)->batch, value, size);
    else if (what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && size == 8)
      std::memcpy(&of(x)->stride, value, size);
    else if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_MODE && size == 4 && library->knows_pointers)
      of(x)->pointers = *static_cast<const uint32_t*>(value) == CUBLASLT_BATCH_MODE_POINTER_ARRAY;
    else
      return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatmulDescCreate = [](cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
    ++library->live;
    *out = reinterpret_cast<cublasLtMatmulDesc_t>(new Product{compute, scale});
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatmulDescDestroy = [](cublasLtMatmulDesc_t x) {
    --library->live;
    delete of(x);
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatmulDescSetAttribute = [](cublasLtMatmulDesc_t x, cublasLtMatmulDescAttributes_t what, const void* value,
                                        size_t size) {
    if (what == CUBLASLT_MATMUL_DESC_TRANSA && size == 4)
      std::memcpy(&of(x)->a, value, size);
    else if (what == CUBLASLT_MATMUL_DESC_TRANSB && size == 4)
      std::memcpy(&of(x)->b, value, size);
    else if (what == CUBLASLT_MATMUL_DESC_EPILOGUE && size == 4)
      std::memcpy(&of(x)->epilogue, value, size);
    else if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER && size == 8)
      std::memcpy(&of(x)->bias, value, size);
    else
      return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatmulPreferenceCreate = [](cublasLtMatmulPreference_t* out) {
    ++library->live;
    *out = new cublasLtMatmulPreferenceOpaque_t{};
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatmulPreferenceDestroy = [](cublasLtMatmulPreference_t x) {
    --library->live;
    delete x;
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatmulPreferenceSetAttribute = [](cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t what,
                                              const void* value, size_t size) {
    if (what != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == 4)
      library->least_alignment = std::min(library->least_alignment, *static_cast<const uint32_t*>(value));
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatmulAlgoGetHeuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                        cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                        cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* out,
                                        int* count) {
    ++library->heuristics;
    *count = 0;
    if (!library->has_anything || (of(a)->pointers && !library->has_pointer_algorithms) ||
        (of(desc)->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !library->has_epilogues))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = {};
    const bool alike = of(d)->cols >= library->alike_from;
    out->algo.data[0] = alike ? 0 : library->next_algorithm++;
    out->algo.data[1] = static_cast<uint64_t>(alike ? library->alike_from : of(d)->cols); // for which it was chosen
    out->workspaceSize = 1000;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatmulAlgoCheck = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                 cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo,
                                 cublasLtMatmulHeuristicResult_t* out) {
    ++library->checks;
    const int64_t columns = of(d)->cols;
    const bool of_others = algo->data[1] != static_cast<uint64_t>(columns);
    if ((of_others && (!library->has_the_algorithm_of_others || library->alone.contains(columns))) ||
        library->refused.contains(algo->data[0]))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = {};
    out->workspaceSize = 500;
    return CUBLAS_STATUS_SUCCESS;
  };
  t.cublasLtMatmul = multiply;
  auto context = state.gpu.context();
  EXPECT_TRUE(
      context
          ->attachment("cuBLASLt", [&](Context&) -> Result<std::shared_ptr<void>> { return std::shared_ptr<void>(lt); })
          .ok());
  std::string why;
  gpu = Gpu::of(context, why);
  EXPECT_NE(gpu, nullptr) << why;
  auto choices = LibraryChoices::of(gpu->context());
  EXPECT_TRUE(choices.ok());
  if (choices.ok()) (*choices)->keep_in(cache);
}

Machine::~Machine() {
  gpu.reset();
  EXPECT_EQ(state.live, 0) << "descriptors are left";
  library = nullptr;
}

} // namespace tessera::cuda::test::fake_cublaslt
