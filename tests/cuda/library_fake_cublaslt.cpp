// Plans of products with a cuBLASLt that computes on the host: which calls are made for a product, with what in their
// descriptors, and what happens where the library refuses.
#include "runtime/cuda/gemm_sizes.h"
#include "runtime/cuda/library_start.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/cuda/library_product.h"

namespace tessera::cuda {
namespace {
using namespace test;
using fake_cublaslt::Machine;

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
  EXPECT_EQ(machine.state.heuristics, 2);
  run(99, false);
  EXPECT_EQ(machine.state.heuristics, 3) << "a product that is always of this size";
  const int checks = machine.state.checks;
  run(99);
  EXPECT_EQ(machine.state.heuristics + machine.state.checks, 3 + checks) << "whose answer is known";
  machine.state.has_the_algorithm_of_others = false;
  run(106);
  EXPECT_EQ(machine.state.heuristics, 4) << "the library does not take it: queried for these sizes";
}

// A plan that is used again improves by querying its own sizes.
TEST(CublasLtPlans, SizesThatComeAgainAreAskedFor) {
  Machine machine;
  Context::Current current(machine.gpu->context());
  auto p = dense_product(DType::F16, {}, 97, 24, 40);
  MatmulCall call;
  ShapeEnv env;
  for (auto* part : {&call.a, &call.b, &call.c})
    for (const char* name : {"r", "c"}) part->shape.push_back(env.named_symbol(name));
  const std::vector<Operand> views = {p.a.view, p.b.view, p.c.view};
  auto plan = [&](bool exactly) {
    PreparedProducts products(1);
    for (const char* name : {"one", "another of its class"}) {
      const std::string step = name;
      EXPECT_TRUE(plan_cuda_matmul({machine.gpu->context(), step, false, exactly, &products[0]}, call, views).ok());
    }
    return improvement_of(products, nullptr);
  };
  auto better = plan(false);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(machine.state.heuristics, 1);
  EXPECT_FALSE(better->outdated());
  EXPECT_TRUE(better->begin());
  EXPECT_TRUE(better->outdated()) << "the fake's answers all differ";
  EXPECT_EQ(machine.state.heuristics, 2) << "once for the products of a class";
  EXPECT_FALSE(plan(false).has_value());
  EXPECT_FALSE(plan(true).has_value());
  EXPECT_EQ(machine.state.heuristics, 2);

  p = dense_product(DType::F16, {}, 99, 24, 40);
  const std::vector<Operand> others = {p.a.view, p.b.view, p.c.view};
  PreparedProducts products(1);
  const std::string step = "exactly";
  EXPECT_TRUE(plan_cuda_matmul({machine.gpu->context(), step, false, true, &products[0]}, call, others).ok());
  EXPECT_FALSE(improvement_of(products, nullptr).has_value())
      << "a caller that waits has the choice for its sizes at once";
  EXPECT_EQ(machine.state.heuristics, 3);
}

TEST(GemmSizes, AGridOfEighths) {
  for (int64_t n = 1; n < 5000; ++n) {
    const int64_t r = rounded_size(n, 8);
    EXPECT_GE(r, n);
    EXPECT_LE(r - n, n / 8) << n;
    EXPECT_EQ(rounded_size(r, 8), r);
    const int64_t below = size_below(n, 8);
    EXPECT_LT(below, n);
    EXPECT_EQ(rounded_size(below, 8), below);
    EXPECT_EQ(rounded_size(below + 1, 8), r) << "no other lies between";
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

TEST(LibraryStart, StartsWhatStepsCall) {
  Machine machine;
  const std::shared_ptr<Context> context(std::shared_ptr<void>(), &machine.gpu->context()); // which the machine owns
  Executable executable;
  const auto begin = [&] {
    LibraryStart start;
    LibraryNeeds needs;
    needs.add(executable);
    start.begin(context, needs);
  };
  begin();
  EXPECT_EQ(machine.state.heuristics, 0);
  LibraryStep product;
  product.call = MatmulCall();
  executable.steps = {Step(product)};
  for (int i = 0; i < 3; ++i) begin();
  EXPECT_EQ(machine.state.heuristics, 1) << "that of the start";
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
