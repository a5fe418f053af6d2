// Plans of products with a cuBLASLt that computes on the host: which calls are made for a product, with what in their
// descriptors, and what happens where the library refuses.
#include "fake_driver.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/gemm_sizes.h"
#include "tests/cuda/library_product.h"
#include <cmath>
#include <cstring>

namespace tessera::cuda {
namespace {
using namespace test;
using tessera::test::FakeGpu;

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

// What the library is and has been asked; one at a time.
struct Library {
  FakeGpu gpu;
  bool knows_pointers = true, has_pointer_algorithms = true, has_epilogues = true, has_anything = true;
  bool has_the_algorithm_of_others = true;
  int heuristics = 0, checks = 0, calls = 0, live = 0;
  uint32_t least_alignment = 1024;
}* library = nullptr;

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
                        const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  library->gpu.run_all();
  ++library->calls;
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

// A fake GPU with the fake library in its context.
struct Machine {
  Library state;
  std::shared_ptr<CublasLt> lt = std::make_shared<CublasLt>();
  std::unique_ptr<Gpu> gpu;

  Machine() {
    library = &state;
    CublasLt& t = *lt;
    t.version = 130000;
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
    t.cublasLtMatmulDescSetAttribute = [](cublasLtMatmulDesc_t x, cublasLtMatmulDescAttributes_t what,
                                          const void* value, size_t size) {
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
                                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                          cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* out,
                                          int* count) {
      ++library->heuristics;
      *count = 0;
      if (!library->has_anything || (of(a)->pointers && !library->has_pointer_algorithms) ||
          (of(desc)->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !library->has_epilogues))
        return CUBLAS_STATUS_NOT_SUPPORTED;
      *out = {};
      out->workspaceSize = 1000;
      *count = 1;
      return CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatmulAlgoCheck = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                   cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                   const cublasLtMatmulAlgo_t*, cublasLtMatmulHeuristicResult_t* out) {
      ++library->checks;
      if (!library->has_the_algorithm_of_others) return CUBLAS_STATUS_NOT_SUPPORTED;
      *out = {};
      out->workspaceSize = 500;
      return CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatmul = multiply;
    auto context = state.gpu.context();
    EXPECT_TRUE(context
                    ->attachment("cuBLASLt",
                                 [&](Context&) -> Result<std::shared_ptr<void>> { return std::shared_ptr<void>(lt); })
                    .ok());
    std::string why;
    gpu = Gpu::of(context, why);
    EXPECT_NE(gpu, nullptr) << why;
  }
  ~Machine() {
    gpu.reset();
    EXPECT_EQ(state.live, 0) << "descriptors are left";
    library = nullptr;
  }
};

TEST(CublasLtPlans, ComputeEveryTransposeTypeAndEpilogue) {
  Machine machine;
  using Activation = LibraryEpilogue::Activation;
  for (DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64})
    for (bool ta : {false, true})
      for (bool tb : {false, true}) check(*machine.gpu, dense_product(dtype, {}, 5, 6, 7, ta, tb), "transposes");
  for (bool bias : {false, true})
    for (bool residual : {false, true})
      for (auto activation : {Activation::None, Activation::Relu, Activation::GeluTanh}) {
        auto p = dense_product(DType::F16, {2, 3}, 4, 8, 5);
        p.b = filled(DType::F16, {5, 8}, {8, 1}, 2);
        p.scale = 0.5;
        add_epilogue(p, bias, residual, activation, 2);
        auto outcome = check(*machine.gpu, p, "epilogue");
        EXPECT_TRUE(outcome.fused);
        EXPECT_EQ(outcome.calls, 1);
      }
}

test::Product heads(int64_t b) {
  int64_t h = 3, s = 4, d = 5, w = h * d;
  test::Product p;
  p.dtype = DType::F16;
  p.a = filled(DType::F16, {b, h, s, d}, {s * w, d, w, 1}, 1, 3);
  p.b = filled(DType::F16, {b, h, d, s}, {s * w, d, 1, w}, 2, 5);
  p.c = filled(DType::F16, {b, h, s, s}, test::dense({b, h, s, s}), 3, 1);
  return p;
}

TEST(CublasLtPlans, BatchesWithoutAStrideGoByAddressesOrOneByOne) {
  Machine machine;
  EXPECT_EQ(check(*machine.gpu, heads(1), "one sequence").calls, 1);
  EXPECT_EQ(check(*machine.gpu, heads(2), "addresses").calls, 1);
  EXPECT_EQ(machine.state.calls, 4); // each plan runs twice
  auto with_residual = heads(2);
  add_epilogue(with_residual, true, true, LibraryEpilogue::Activation::Relu);
  auto outcome = check(*machine.gpu, with_residual, "addresses of a residual");
  EXPECT_TRUE(outcome.fused);
  machine.state.has_pointer_algorithms = false;
  auto wider = heads(2);
  wider.scale = 2;
  wider.c = filled(DType::F16, wider.c.view.shape, wider.c.view.strides, 3, 2); // another problem: nothing is cached
  EXPECT_EQ(check(*machine.gpu, wider, "no algorithm").calls, 2);
  machine.state.knows_pointers = false;
  EXPECT_EQ(check(*machine.gpu, heads(2), "an older library").calls, 2);
}

TEST(CublasLtPlans, WhatTheLibraryRefusesIsLeftOrSaid) {
  Machine machine;
  machine.state.has_epilogues = false;
  auto p = dense_product(DType::F32, {}, 4, 8, 5);
  add_epilogue(p, true, false, LibraryEpilogue::Activation::Relu);
  p.can_finish = true;
  EXPECT_FALSE(check(*machine.gpu, p, "left to the kernel").fused);
  machine.state.has_anything = false;
  auto other = dense_product(DType::F32, {}, 4, 8, 6);
  std::vector<Operand> views = {other.a.view, other.b.view, other.c.view};
  auto refused = plan_cuda_matmul({machine.gpu->context(), "MatMul_9", false}, MatmulCall{}, views);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(refused.error().str().find("MatMul_9"), std::string::npos);
  EXPECT_NE(refused.error().str().find("8x4x6"), std::string::npos) << refused.error().str();
}

TEST(CublasLtPlans, TheSameProblemIsAskedOnce) {
  Machine machine;
  check(*machine.gpu, dense_product(DType::F16, {}, 4, 8, 5), "first");
  check(*machine.gpu, dense_product(DType::F16, {}, 4, 8, 5), "again");
  EXPECT_EQ(machine.state.heuristics, 1);
  check(*machine.gpu, dense_product(DType::F16, {}, 4, 8, 6), "another");
  EXPECT_EQ(machine.state.heuristics, 2);
}

// Sizes of one cell of the grid share what the library chose for its corner.
TEST(CublasLtPlans, SizesThatVaryAskForAGridOfSizes) {
  Machine machine;
  auto run = [&](int64_t m, bool varies = true) {
    auto p = dense_product(DType::F16, {}, m, 24, 40);
    p.varies = varies;
    check(*machine.gpu, p, "rows " + std::to_string(m));
  };
  run(97);
  EXPECT_EQ(machine.state.heuristics, 1);
  EXPECT_EQ(machine.state.checks, 1);
  for (int64_t m = 98; m <= 104; ++m) run(m);
  EXPECT_EQ(machine.state.heuristics, 1) << "up to 104, the corner itself";
  EXPECT_EQ(machine.state.checks, 7);
  run(105);
  EXPECT_EQ(machine.state.heuristics, 2);
  run(105);
  EXPECT_EQ(machine.state.heuristics + machine.state.checks, 2 + 8) << "a size that was planned is known";
  run(99, false); // another product of that size is the same problem
  EXPECT_EQ(machine.state.heuristics, 2);
  machine.state.has_the_algorithm_of_others = false;
  run(106);
  EXPECT_EQ(machine.state.heuristics, 3) << "the library does not take it: asked for these sizes";
}

TEST(GemmSizes, AGridOfEighths) {
  for (int64_t n = 1; n < 5000; ++n) {
    const int64_t r = rounded_size(n, 8);
    EXPECT_GE(r, n);
    EXPECT_LE(r - n, n / 8) << n;
    EXPECT_EQ(rounded_size(r, 8), r);
  }
  for (int64_t n : {1, 8, 64, 96, 768, 1024, 3072, 4096}) EXPECT_EQ(rounded_size(n, 8), n);
}

TEST(GemmSizes, DistancesKeepTheirAlignment) {
  for (int64_t size = 33; size < 200; ++size) {
    GemmProblem p;
    p.m = p.n = p.k = size;
    p.batch = 5;
    p.a = p.b = p.c = {false, size, size, size, size * size};
    p.b = {true, size, size, 4096, 128}; // columns of several matrices side by side
    const GemmProblem like = on_grid(p, {true, true, true, true}, 2, 4);
    EXPECT_GE(like.a.ld, like.a.rows);
    EXPECT_GE(like.a.batch_stride, like.a.ld * (like.a.cols - 1) + like.a.rows);
    auto aligned = [](int64_t x, int64_t bytes) { return std::min<int64_t>(x * bytes & -(x * bytes), 128); };
    EXPECT_EQ(aligned(like.a.ld, 2), aligned(p.a.ld, 2)) << size;
    EXPECT_EQ(aligned(like.a.batch_stride, 2), aligned(p.a.batch_stride, 2)) << size;
    EXPECT_EQ(aligned(like.c.ld, 4), aligned(p.c.ld, 4)) << size;
    EXPECT_EQ(like.b.ld, 4096);
    EXPECT_EQ(like.b.batch_stride, 128);
    EXPECT_EQ(like.batch, 8);
    const GemmProblem fixed = on_grid(p, {}, 2, 4);
    EXPECT_TRUE(fixed.m == size && fixed.a.ld == size && fixed.a.batch_stride == size * size && fixed.batch == 5);
  }
}

TEST(CublasLtPlans, OffsetsLowerThePromisedAlignment) {
  Machine machine;
  check(*machine.gpu, dense_product(DType::F16, {}, 4, 8, 8), "aligned");
  EXPECT_EQ(machine.state.least_alignment, 16u);
  auto p = dense_product(DType::F16, {}, 4, 8, 8);
  p.a = filled(DType::F16, {4, 8}, {8, 1}, 1, 2);
  check(*machine.gpu, p, "four bytes off");
  EXPECT_EQ(machine.state.least_alignment, 4u);
}

TEST(CublasLtPlans, SumsOverNothingAreZerosAndEmptyResultsNothing) {
  Machine machine;
  check(*machine.gpu, dense_product(DType::F32, {2}, 5, 6, 0), "k 0");
  auto gaps = dense_product(DType::F32, {}, 5, 6, 0);
  gaps.c = filled(DType::F32, {5, 6}, {9, 1}, 3, 2);
  check(*machine.gpu, gaps, "k 0, with gaps");
  auto epilogue = dense_product(DType::F32, {}, 5, 6, 0);
  add_epilogue(epilogue, true, false, LibraryEpilogue::Activation::None);
  epilogue.can_finish = true;
  EXPECT_FALSE(check(*machine.gpu, epilogue, "k 0 and a bias").fused);
  check(*machine.gpu, dense_product(DType::F32, {2}, 0, 6, 3), "m 0");
  check(*machine.gpu, dense_product(DType::F32, {0}, 5, 6, 3), "batch 0");
  EXPECT_EQ(machine.state.calls, 0);
}

// The library itself, without a GPU: it knows the attributes that plans set, and their sizes.
TEST(CublasLtDescriptors, HaveTheAttributesThatPlansSet) {
  auto opened = CublasLt::open();
  if (!opened) GTEST_SKIP() << opened.error().str();
  const CublasLt& lt = **opened;
  cublasLtMatrixLayout_t layout = nullptr;
  ASSERT_EQ(lt.cublasLtMatrixLayoutCreate(&layout, CUDA_R_16F, 8, 4, 8), CUBLAS_STATUS_SUCCESS);
  int32_t batch = 3;
  int64_t stride = 32;
  uint32_t mode = CUBLASLT_BATCH_MODE_POINTER_ARRAY;
  EXPECT_EQ(lt.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(
      lt.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
      CUBLAS_STATUS_SUCCESS);
  if (lt.version >= 130000) {
    EXPECT_EQ(lt.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &mode, sizeof mode),
              CUBLAS_STATUS_SUCCESS);
  }
  lt.cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDesc_t product = nullptr;
  ASSERT_EQ(lt.cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    EXPECT_EQ(lt.cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_GELU_BIAS));
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(uintptr_t{272}));
  lt.cublasLtMatmulDescDestroy(product);
  cublasLtMatmulPreference_t preference = nullptr;
  ASSERT_EQ(lt.cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  uint64_t workspace = 1 << 20;
  uint32_t aligned = 16;
  EXPECT_EQ(lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                    sizeof workspace),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &aligned,
                                                    sizeof aligned),
            CUBLAS_STATUS_SUCCESS);
  lt.cublasLtMatmulPreferenceDestroy(preference);
}

} // namespace
} // namespace tessera::cuda
