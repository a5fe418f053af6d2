// The cost of schedules on devices that differ in one figure.
#include "block_harness.h"
#include "codegen/schedule/candidates.h"
#include "codegen/schedule/cost.h"
#include "codegen/target/select.h"
#include "nests.h"

namespace tessera::test {
namespace {

// The least cost of a copy of `bytes` there.
double copy_us(double bytes, const Target& device) {
  const std::string n = std::to_string(static_cast<int64_t>(bytes / 8));
  const Problem p = problem("x: f32[" + n + "]\ny: f32[" + n + "]",
                            "nest copy outer(i0: " + n + ") { %0 = load x[i0] : f32\n store y[i0] = %0 }");
  auto list = candidates(p.graph, p.nest, device, {}, {});
  EXPECT_TRUE(list.ok() && !list->empty());
  double least = 1e300;
  for (const Candidate& c : *list)
    if (c.estimate_us > 0) least = std::min(least, c.estimate_us);
  return least;
}

TEST(CostTarget, FiguresDecide) {
  const Target h200 = shipped_target("h200");
  const double large = 4e9, small = 4096;
  Target half = h200;
  half.memory_peak_bytes_per_us /= 2;
  EXPECT_NEAR(copy_us(large, half) / copy_us(large, h200), 1.85, 0.15);
  Target slow = h200;
  slow.kernel_us *= 3;
  EXPECT_NEAR(copy_us(small, slow) - copy_us(small, h200), 2 * h200.kernel_us, 0.01);
  const Target &a100 = shipped_target("a100"), &rtx = shipped_target("rtx4090");
  EXPECT_LT(copy_us(large, h200), copy_us(large, a100));
  EXPECT_LT(copy_us(large, a100), copy_us(large, rtx));
}

} // namespace
} // namespace tessera::test
