// Products on a GPU against sums in f64: types, transposes, batches, odd sizes, offsets, epilogues.
#include "base/temporary_folder.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/library_choices.h"
#include "tests/cuda/library_product.h"

namespace tessera::cuda {
namespace {
using namespace test;

const DType kTypes[] = {DType::F32, DType::F16, DType::BF16, DType::F64};

TEST(GpuMatmul, TypesTransposesAndOddSizes) {
  TESSERA_GPU_OR_SKIP(gpu);
  const std::array<int64_t, 3> sizes[] = {{64, 64, 64}, {128, 768, 256}, {1, 768, 768},  {7, 13, 5}, {33, 1, 65},
                                          {1, 1, 1},    {1, 1, 1000},    {129, 257, 63}, {8, 3, 1}};
  for (DType dtype : kTypes)
    for (auto [m, n, k] : sizes)
      for (bool ta : {false, true})
        for (bool tb : {false, true})
          check(*gpu, dense_product(dtype, {}, m, n, k, ta, tb),
                std::string(name(dtype)) + " " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
                    (ta ? " T" : " N") + (tb ? "T" : "N"));
}

TEST(GpuMatmul, Batches) {
  TESSERA_GPU_OR_SKIP(gpu);
  for (DType dtype : kTypes) {
    check(*gpu, dense_product(dtype, {3}, 17, 9, 33), "one");
    check(*gpu, dense_product(dtype, {2, 3}, 16, 24, 8), "two that merge");
    auto shared = dense_product(dtype, {4}, 10, 12, 16);
    shared.b = filled(dtype, {16, 12}, {12, 1}, 2);
    EXPECT_EQ(check(*gpu, shared, "weights").calls, 1);
    shared.b = filled(dtype, {1, 16, 12}, {0, 12, 1}, 2);
    check(*gpu, shared, "a repeated matrix");
    shared.b = filled(dtype, {4, 16, 12}, {192, 12, 1}, 2);
    shared.a = filled(dtype, {10, 16}, {16, 1}, 1);
    check(*gpu, shared, "one left matrix for all");
  }
}

TEST(GpuMatmul, HeadsOfSeveralSequences) {
  TESSERA_GPU_OR_SKIP(gpu);
  for (DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (auto [b, h, s, d] : {std::array<int64_t, 4>{1, 12, 37, 64}, {3, 4, 16, 64}, {2, 3, 7, 5}, {8, 12, 33, 64}}) {
      int64_t w = h * d;
      Product scores;
      scores.dtype = dtype;
      scores.a = filled(dtype, {b, h, s, d}, {s * w, d, w, 1}, 1);
      scores.b = filled(dtype, {b, h, d, s}, {s * w, d, 1, w}, 2);
      scores.c = filled(dtype, {b, h, s, s}, test::dense({b, h, s, s}), 3);
      scores.scale = 0.125;
      check(*gpu, scores, "scores");
      Product values;
      values.dtype = dtype;
      values.a = filled(dtype, {b, h, s, s}, test::dense({b, h, s, s}), 4);
      values.b = filled(dtype, {b, h, s, d}, {s * w, d, w, 1}, 5);
      values.c = filled(dtype, {b, h, s, d}, {s * w, d, w, 1}, 6);
      check(*gpu, values, "values");
      // Heads that share keys: a batch dimension that b does not go along.
      Product shared;
      shared.dtype = dtype;
      shared.a = filled(dtype, {b, 2, h, s, d}, test::dense({b, 2, h, s, d}), 7);
      shared.b = filled(dtype, {b, 2, h, d, s}, {2 * s * d, s * d, 0, 1, d}, 8);
      shared.c = filled(dtype, {b, 2, h, s, s}, test::dense({b, 2, h, s, s}), 9);
      check(*gpu, shared, "shared keys");
    }
}

TEST(GpuMatmul, PartsOfLargerMatricesAtOddOffsets) {
  TESSERA_GPU_OR_SKIP(gpu);
  for (DType dtype : kTypes)
    for (int64_t offset : {1, 3, 8}) {
      Product p;
      p.dtype = dtype;
      p.a = filled(dtype, {19, 24}, {29, 1}, 1, offset);
      p.b = filled(dtype, {24, 17}, {1, 27}, 2, offset + 2);
      p.c = filled(dtype, {19, 17}, {21, 1}, 3, offset);
      check(*gpu, p, "offset " + std::to_string(offset));
      p.c = filled(dtype, {19, 17}, {1, 23}, 3, offset);
      check(*gpu, p, "column-major, offset " + std::to_string(offset));
    }
}

TEST(GpuMatmul, Epilogues) {
  TESSERA_GPU_OR_SKIP(gpu);
  using Activation = LibraryEpilogue::Activation;
  for (DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (auto [m, n, k] :
         {std::array<int64_t, 3>{64, 96, 32}, {37, 768, 256}, {96, 512, 768}, {1, 1000, 64}, {5, 7, 9}})
      for (bool bias : {false, true})
        for (bool residual : {false, true})
          for (auto activation : {Activation::None, Activation::Relu, Activation::GeluTanh}) {
            auto p = dense_product(dtype, {}, m, n, k, false, m % 2 == 0);
            add_epilogue(p, bias, residual, activation, bias ? 1 : 0.5);
            p.can_finish = true;
            auto outcome = check(*gpu, p,
                                 std::string(name(dtype)) + " " + std::to_string(m) + "x" + std::to_string(n) +
                                     (bias ? " bias" : "") + (residual ? " residual" : "") + " activation " +
                                     std::to_string(static_cast<int>(activation)));
            EXPECT_TRUE(outcome.fused || n % 8 != 0);
          }
  auto f64 = dense_product(DType::F64, {}, 9, 8, 7);
  add_epilogue(f64, false, true, Activation::None, 0.25);
  EXPECT_TRUE(check(*gpu, f64, "f64 residual").fused);
  // Rows at a time of a batch.
  auto batched = dense_product(DType::F16, {4, 3}, 8, 16, 32);
  batched.b = filled(DType::F16, {32, 16}, {16, 1}, 2);
  add_epilogue(batched, true, true, Activation::None);
  auto outcome = check(*gpu, batched, "rows of a batch");
  EXPECT_TRUE(outcome.fused);
  EXPECT_EQ(outcome.calls, 1);
}

TEST(GpuMatmul, WhatTheEpilogueCannotDoIsLeftToTheKernel) {
  TESSERA_GPU_OR_SKIP(gpu);
  auto p = dense_product(DType::F32, {}, 8, 8, 8);
  add_epilogue(p, false, false, LibraryEpilogue::Activation::GeluErf);
  p.can_finish = true;
  EXPECT_FALSE(check(*gpu, p, "gelu by erf").fused);
  std::vector<Operand> views = {p.a.view, p.b.view, p.c.view};
  MatmulCall call;
  call.fused = p.fused;
  Context::Current current(gpu->context());
  auto refused = plan_cuda_matmul({gpu->context(), "MatMul_5", false}, call, views);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(refused.error().str().find("MatMul_5"), std::string::npos);
}

TEST(GpuMatmul, SumsOverNothingAndEmptyResults) {
  TESSERA_GPU_OR_SKIP(gpu);
  for (DType dtype : kTypes) {
    check(*gpu, dense_product(dtype, {2}, 5, 6, 0), "k 0");
    auto gaps = dense_product(dtype, {}, 5, 6, 0);
    gaps.c = filled(dtype, {5, 6}, {9, 1}, 3, 2);
    check(*gpu, gaps, "k 0, with gaps");
    check(*gpu, dense_product(dtype, {2}, 0, 6, 3), "m 0");
    check(*gpu, dense_product(dtype, {2}, 5, 0, 3), "n 0");
    check(*gpu, dense_product(dtype, {0}, 5, 6, 3), "batch 0");
  }
}

TEST(GpuMatmul, BytesIntoIntegers) {
  TESSERA_GPU_OR_SKIP(gpu);
  Product p; // the layout that the library has kernels for: both matrices dense along the sum, sizes of 4
  p.dtype = DType::I8;
  p.a = filled(DType::I8, {32, 64}, {64, 1}, 1);
  p.b = filled(DType::I8, {64, 16}, {1, 64}, 2);
  p.c = filled(DType::I32, {32, 16}, {16, 1}, 3);
  check(*gpu, p, "i8");
}

TEST(GpuMatmul, TheSameTwice) {
  TESSERA_GPU_OR_SKIP(gpu);
  auto p = dense_product(DType::F16, {}, 256, 768, 3072);
  std::vector<DeviceOperand*> operands = {&p.a, &p.b, &p.c};
  std::vector<Operand> views;
  for (size_t i = 0; i < operands.size(); ++i) {
    operands[i]->view.buffer = static_cast<BufferId>(i);
    views.push_back(operands[i]->view);
  }
  Context::Current current(gpu->context());
  auto plan = plan_cuda_matmul({gpu->context(), "test", false}, MatmulCall{}, views);
  ASSERT_TRUE(plan.ok()) << plan.error().str();
  auto first = gpu->run(**plan, operands, 2), second = gpu->run(**plan, operands, 2);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(std::equal(first->data(), first->data() + first->bytes(), second->data()));
}

// Queries of the heuristics of a library that counts them.
int queries = 0;
decltype(CublasLt::cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
cublasStatus_t counted(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                       cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t* out,
                       int* count) {
  ++queries;
  return get_heuristic(handle, product, a, b, c, d, preference, most, out, count);
}

// The library's own algorithms, restored by a later process.
TEST(GpuMatmul, ChoicesAreRestored) {
  TESSERA_GPU_OR_SKIP(here);
  auto folder = TemporaryFolder::create("tessera-choices");
  ASSERT_TRUE(folder.ok());
  for (int process = 0; process < 2; ++process) {
    auto context = Context::create(Driver::load().value());
    ASSERT_TRUE(context.ok());
    auto library = CublasLt::of(**context);
    if (!library.ok()) GTEST_SKIP() << library.error().message;
    get_heuristic = std::exchange((*library)->cublasLtMatmulAlgoGetHeuristic, counted);
    LibraryChoices::of(**context).value()->keep_in(std::make_shared<Cache>(folder->path(), true));
    auto gpu = Gpu::of(*context, here_why);
    ASSERT_TRUE(gpu) << here_why;
    queries = 0;
    int calls = 0;
    for (DType dtype : kTypes)
      for (bool epilogue : {false, true})
        for (int64_t m : {1, 2, 7, 16, 33, 100, 101, 103, 104, 200, 250}) {
          auto p = dense_product(dtype, {}, m, 48, 64);
          p.varies = true;
          p.can_finish = true;
          if (epilogue) add_epilogue(p, true, false, LibraryEpilogue::Activation::Relu);
          check(*gpu, p, std::string(name(dtype)) + " " + std::to_string(m));
          ++calls;
        }
    std::printf("%d queries of the heuristics for %d products\n", queries, calls);
    EXPECT_EQ(queries > 0, process == 0);
  }
}

} // namespace
} // namespace tessera::cuda
