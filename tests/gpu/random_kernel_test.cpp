// Random tile kernels (tests/layout/random_kernel.h) on the emulator: layouts, conversions, reductions and scans of
// every shape next to each other.
#include "harness.h"
#include "tests/base/seeds.h"
#include "tests/layout/random_kernel.h"

namespace tessera::test {
namespace {

TEST(RandomKernels, DoWhatTheInterpreterSays) {
  using layout::test::RandomKernel;
  for (unsigned seed = 0; seed < seeds(24) && !testing::Test::HasFatalFailure(); ++seed) {
    RandomKernel random(1000 + seed);
    GpuRun run;
    run.buffers = {filled(DType::F32, RandomKernel::kInputs, 0),
                   random_tensor(DType::I64, RandomKernel::kInputs, seed, RandomKernel::kInputs - 1),
                   filled(DType::F32, RandomKernel::kOutputs, -7)};
    for (int64_t i = 0; i < RandomKernel::kInputs; ++i) // small integers: their sums are exact in any order
      run.buffers[0].set_f64(i, static_cast<double>((i * 7919 + seed) % 33) - 16);
    run.scalars = {seed % 2 ? 8 : 20};
    run.tolerance = 1e-4; // but for sums of sums beyond 2^24
    run.warps = {1 << seed % 4};
    run.seeds = 2;
    expect_as_interpreted(random.kernel(), run);
  }
}

} // namespace
} // namespace tessera::test
