// Library calls that are refused when a shape is planned: the session compiles the nodes concerned as loops. On a GPU
// that is none.
#include "harness.h"
#include "tests/cuda/fake_driver.h"
#include "tests/cuda/variable.h"

namespace tessera::api_test {
namespace {

using test::FakeGpu;
using test::Variable;

TEST(RefusedCalls, AreCompiledAsLoopsOnce) {
  Variable without("TESSERA_CUDA_WITHOUT", "cuBLASLt");
  Maker model;
  model.input("x", {2, 3}).input("w", {3, 4}).add("MatMul", {"x", "w"}, {"y"}).output("y");
  FakeGpu gpu;
  auto options = api_test::options();
  options.compile.device = "cuda";
  options.executor.gpu_context = gpu.context();
  {
    auto session = open(model, options);
    ASSERT_TRUE(session);
    EXPECT_TRUE(std::holds_alternative<LibraryStep>(session->variants()[0]->compiled->executable->steps[0]));
    Inputs in = {{"x", numbers({2, 3})}, {"w", numbers({3, 4}, 1)}};
    RunStats stats;
    auto unknown = session->run(in, &stats); // the fake GPU does not have the new kernel
    EXPECT_FALSE(unknown.ok());
    EXPECT_EQ(stats.recompiles, 1);
    ASSERT_EQ(stats.misses.size(), 1u);
    EXPECT_NE(stats.misses[0].reason.find("cuBLASLt is left out"), std::string::npos) << stats.misses[0].reason;
    ASSERT_EQ(session->variants().size(), 2u);
    const auto& loops = *session->variants()[1];
    EXPECT_EQ(loops.label, "generic, 1 nodes as loops");
    EXPECT_EQ(loops.as_loops, (std::set<std::string>{"n_y"}));
    ASSERT_EQ(loops.compiled->executable->steps.size(), 1u);
    const auto& kernel = std::get<KernelLaunch>(loops.compiled->executable->steps[0]);
    ASSERT_EQ(kernel.buffers.size(), 3u);
    gpu.kernel(kernel.symbol, kernel.buffers.size() + kernel.sizes.size() + 1, [&](const FakeGpu::Launch& l) {
      const float *x = nullptr, *w = nullptr;
      float* y = nullptr;
      for (size_t i = 0; i < 3; ++i) {
        const auto& name = loops.compiled->executable->buffers[static_cast<size_t>(kernel.buffers[i])].name;
        if (name == "x") x = gpu.at<float>(l.args[i], 6);
        if (name == "w") w = gpu.at<float>(l.args[i], 12);
        if (name == "y") y = gpu.at<float>(l.args[i], 8);
      }
      for (int i = 0; i < 8; ++i) {
        y[i] = 0;
        for (int k = 0; k < 3; ++k) y[i] += x[i / 4 * 3 + k] * w[k * 4 + i % 4];
      }
      return CUDA_SUCCESS;
    });
    for (int round = 0; round < 2; ++round) {
      expect_right(model, in, session->run(in, &stats));
      EXPECT_EQ(stats.recompiles, 0);
      EXPECT_EQ(stats.variant, 1);
    }
    auto other = session->new_executor();
    ASSERT_TRUE(other.ok()) << other.error().str();
    expect_right(model, in, (*other)->run(in, &stats));
    EXPECT_EQ(stats.recompiles, 0);
    EXPECT_EQ(session->variants().size(), 2u);
  }
}

} // namespace
} // namespace tessera::api_test
