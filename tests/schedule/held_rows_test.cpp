// Long rows that their teams hold (docs/gpu-schedules.md), on a GPU so small that some teams begin when others have
// ended.
#include "block_harness.h"
#include "nests.h"

namespace tessera::test {
namespace {

// Programs a row, elements a thread, tiles in shared memory.
void expect_held(const Problem& p, int64_t members, int each, int keep) {
  const int multiprocessors = 1;
  auto domain = make_domain(p.graph, p.nest);
  const BlockPlan first = plan_blocks(p.graph, p.nest, *domain, gpu_with(multiprocessors), {}).front();
  ASSERT_TRUE(first.team && first.waits && first.loop) << first.schedule.why;
  EXPECT_EQ(first.team->as_const(), members);
  EXPECT_EQ(first.columns, 32 * first.warps * each);
  EXPECT_EQ(first.keep, keep);
  kernel_runner().blocks_only = true;
  expect_same(p, {{}}, {.tolerance = 1e-3, .multiprocessors = multiprocessors});
  kernel_runner().blocks_only = false;
}

TEST(HeldRows, WholeAccesses) { expect_held(softmax_of("2", "65536"), 4, 32, 1); }
TEST(HeldRows, AnyAlignment) { expect_held(softmax_of("2", "65541"), 5, 8, 6); }

} // namespace
} // namespace tessera::test
