// Kernels of examples/tile as they stand there: warpgroups compute them, and right.
#include "codegen/llvm/gpu_compiler.h"
#include "harness.h"
#include <cmath>
#include <fstream>
#include <sstream>

namespace tessera::test {
namespace {

tile::Kernel example(const std::string& name) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/examples/tile/" + name + ".tile");
  std::ostringstream text;
  text << file.rdbuf();
  auto kernel = tile::parse(text.str(), name);
  EXPECT_TRUE(kernel.ok()) << kernel.error().str();
  return kernel.ok() ? std::move(*kernel) : tile::Kernel();
}

struct Product {
  std::string name, instruction;
  int rows = 128, columns = 256; // of a tile
  DType factor = DType::F16, result = DType::F16;
  bool turned = false; // b is [n, k]
};

// c = a b on the emulator, for each of the sizes (m, n, k): as a sum in f64 times `scale`, plus a bias, through relu.
void expect_product(const Product& p, const std::vector<std::array<int64_t, 3>>& sizes, double scale, bool biased) {
  SCOPED_TRACE(p.name);
  const tile::Kernel kernel = example(p.name);
  const GpuTarget target = *GpuTarget::parse("sm_90a");
  const auto code = compile_gpu_kernel(kernel, target);
  ASSERT_TRUE(code.ok()) << code.error().str();
  EXPECT_EQ(code->products, "by warpgroups, 4 stages");
  EXPECT_NE(code->ptx.find(p.instruction), std::string::npos);
  const auto program = EmulatedProgram::compile(kernel, target);
  ASSERT_TRUE(program.ok()) << program.error().str();
  EXPECT_EQ(program->threads(), 32 * (8 + 4)) << "a producer, here too";
  for (const auto& [m, n, k] : sizes) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
    Tensor a = random_tensor(p.factor, m * k, 1, 2), b = random_tensor(p.factor, k * n, 2, 2),
           extra = biased ? random_tensor(DType::F32, n, 3, 2) : *Tensor::create(DType::F32, {1}),
           c = filled(p.result, m * n, 9);
    if (!biased) extra.set_f64(0, scale);
    std::vector<tile::Argument> args;
    for (Tensor* t : {&a, &b, &extra, &c}) args.push_back({{t->mutable_data(), t->bytes()}, {}});
    for (const int64_t size : {m, n, k}) args.push_back({{}, {0, size}});
    const int64_t grid = (m + p.rows - 1) / p.rows * ((n + p.columns - 1) / p.columns);
    const auto run = program->run(args, grid, {.seed = 3});
    ASSERT_TRUE(run.ok()) << run.error().str();
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t s = 0; s < k; ++s) sum += a.get_f64(i * k + s) * b.get_f64(p.turned ? j * k + s : s * n + j);
        sum *= scale;
        if (biased) sum = std::max(0.0, sum + extra.get_f64(j));
        ASSERT_NEAR(c.get_f64(i * n + j), sum, 1e-2 * (1 + std::abs(sum))) << i << ", " << j;
      }
  }
}

TEST(ExampleKernels, ProductOfF16WithABias) {
  expect_product({.name = "product_f16", .instruction = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"},
                 {{130, 264, 72}, {1, 8, 8}, {128, 256, 128}}, 1, true);
}

TEST(ExampleKernels, ProductOf8BitFloatsWithAScale) {
  expect_product({.name = "product_f8",
                  .instruction = "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3",
                  .columns = 128,
                  .factor = DType::F8E4M3FN,
                  .result = DType::BF16,
                  .turned = true},
                 {{130, 136, 272}, {1, 8, 16}, {128, 128, 128}}, 0.25, false);
}

} // namespace
} // namespace tessera::test
