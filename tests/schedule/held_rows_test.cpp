// Long rows that their teams, or single blocks, hold (docs/schedules.md). Teams on a GPU so small that some begin
// when others have ended.
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

// By one block, the tiles copied to shared memory at once: threads, elements of each, tiles there.
void expect_copied(const Problem& p, int threads, int each, int keep, double tolerance) {
  auto domain = make_domain(p.graph, p.nest);
  const BlockPlan first = plan_blocks(p.graph, p.nest, *domain, gpu_with(1), {}).front();
  ASSERT_TRUE(!first.team && first.loop && first.copied) << first.schedule.why;
  EXPECT_EQ(32 * first.warps, threads) << first.schedule.why;
  EXPECT_EQ(first.columns, threads * each);
  EXPECT_EQ(first.keep, keep);
  kernel_runner().blocks_only = true;
  expect_same(p, {{}}, {.tolerance = tolerance, .multiprocessors = 1});
  kernel_runner().blocks_only = false;
}

// By one block: elements a thread, tiles in shared memory.
void expect_held_alone(const Problem& p, int each, int keep, bool ahead) {
  auto domain = make_domain(p.graph, p.nest);
  const BlockPlan first = plan_blocks(p.graph, p.nest, *domain, gpu_with(1), {}).front();
  ASSERT_TRUE(!first.team && first.loop) << first.schedule.why;
  EXPECT_EQ(first.columns, 32 * first.warps * each) << first.schedule.why;
  EXPECT_EQ(first.keep, keep);
  EXPECT_EQ(first.ahead, ahead);
  kernel_runner().blocks_only = true;
  expect_same(p, {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  kernel_runner().blocks_only = false;
}

TEST(HeldRows, WholeAccesses) { expect_held(softmax_of("2", "65536"), 4, 32, 1); }
TEST(HeldRows, AnyAlignment) { expect_held(softmax_of("2", "65541"), 5, 8, 6); }

TEST(HeldRows, AllOfThemByABlock) { expect_held_alone(softmax_of("2", "16208"), 16, 1, false); }
TEST(HeldRows, CopiedAtOnce) {
  expect_copied(softmax_of("4", "16384", "f16"), 256, 16, 4, 2e-3); // instead of a tile of 64 elements a thread
  expect_copied(softmax_of("2", "32768", "bf16"), 256, 16, 8, 1e-2);
  expect_copied(softmax_of("2", "40960", "bf16"), 512, 16, 5, 1e-2);
  expect_copied(softmax_of("6", "98304", "bf16"), 512, 16, 12, 1e-2);
  expect_copied(norm_of("5", "24576", "f16"), 512, 16, 3, 5e-3);
  expect_copied(softmax_of("2", "20480"), 512, 8, 5, 1e-4);
}
TEST(HeldRows, CopiedAtOnceWhateverTheNumberOfRows) {
  const Problem p = softmax_of("n", "32768", "bf16");
  auto domain = make_domain(p.graph, p.nest);
  const auto plans = plan_blocks(p.graph, p.nest, *domain, gpu_with(), {});
  EXPECT_TRUE(plans.back().copied) << plans.back().schedule.why;
  kernel_runner().blocks_only = true;
  expect_same(p, {{{"n", 3}}, {{"n", 0}}}, {.tolerance = 1e-2, .multiprocessors = 1});
  kernel_runner().blocks_only = false;
}
TEST(HeldRows, CopiedAtOnceButForTheTileThatEndsTheRow) {
  expect_copied(softmax_of("4", "15000", "f16"), 256, 16, 3, 2e-3);  // which is a part of one
  expect_copied(softmax_of("5", "65536", "bf16"), 512, 16, 7, 1e-2); // for which there is no room
  expect_copied(softmax_of("2", "30000"), 512, 8, 7, 1e-4);
}
// Where a multiprocessor holds much of one stream, of all rows at a time.
TEST(HeldRows, WhatIsHeldAllAtATimeNeedNotLast) {
  auto reads = [](const Problem& p) {
    auto domain = make_domain(p.graph, p.nest);
    const BlockPlan first = plan_blocks(p.graph, p.nest, *domain, gpu_with(), {}).front();
    EXPECT_TRUE(first.team && first.waits) << first.schedule.why;
    return tile::name(first.reads);
  };
  EXPECT_EQ(reads(softmax_of("16", "1048576", "bf16")), "passing");
  EXPECT_EQ(reads(softmax_of("16", "800000", "bf16")), "passing");
  EXPECT_EQ(reads(norm_of("16", "1048576", "bf16")), "passing");
  EXPECT_EQ(reads(softmax_of("16", "524288", "bf16")), "lasting"); // half of what there is room for
  EXPECT_EQ(reads(softmax_of("64", "131072", "bf16")), "lasting");
  EXPECT_EQ(reads(add_norm_of("16", "524288", "bf16")), "lasting"); // two streams
  EXPECT_EQ(reads(softmax_of("638", "131072", "f16")), "lasting");  // teams that follow each other
  EXPECT_EQ(reads(softmax_of("16", "1048576")), "lasting");
}
// Elements at the ends of the row are loaded and stored one by one.
TEST(HeldRows, CopiedAtOnceAtAnyAlignment) {
  expect_copied(softmax_of("4", "20001", "f16"), 256, 16, 4, 2e-3);
  expect_copied(softmax_of("4", "13001", "bf16"), 256, 16, 3, 1e-2); // instead of a tile
  expect_copied(softmax_of("3", "28675", "bf16"), 256, 16, 7, 1e-2);
  expect_copied(softmax_of("3", "28653", "f16"), 512, 16, 3, 2e-3); // of smaller tiles some rows would have one more
  expect_copied(softmax_of("3", "40001", "f16"), 512, 16, 4, 2e-3);
  expect_copied(norm_of("5", "30001", "bf16"), 512, 16, 3, 2e-2);
  expect_copied(softmax_of("3", "24577"), 512, 8, 6, 1e-4);
}
TEST(HeldRows, CopiedByTeamsThatFollowEachOther) {
  auto copied = [](const Problem& p, int multiprocessors) {
    auto domain = make_domain(p.graph, p.nest);
    const BlockPlan first = plan_blocks(p.graph, p.nest, *domain, gpu_with(multiprocessors), {}).front();
    EXPECT_TRUE(first.team && first.waits) << first.schedule.why;
    EXPECT_FALSE(first.copied && first.ahead);
    return first.copied;
  };
  EXPECT_TRUE(copied(softmax_of("16", "1048576"), 132));
  EXPECT_TRUE(copied(softmax_of("90", "390656"), 132)); // whose last tile is a part of one
  EXPECT_TRUE(copied(softmax_of("638", "131072", "f16"), 132));
  EXPECT_FALSE(copied(softmax_of("500", "200704", "bf16"), 132)); // many small shares
  EXPECT_FALSE(copied(softmax_of("16", "1048576", "bf16"), 132)); // all begin, and meet, at a time
  EXPECT_FALSE(copied(softmax_of("90", "390641"), 132));          // rows begin anywhere
}
TEST(HeldRows, AnyAlignmentByABlock) {
  expect_held_alone(softmax_of("2", "34737"), 16, 3, false);
  expect_held_alone(softmax_of("2", "40001", "f16"), 16, 4, false);
}
TEST(HeldRows, OfNarrowElementsALittleMoreThanATile) {
  expect_held_alone(softmax_of("5", "24575", "f16"), 16, 6, true); // some have seven tiles, others six
}
TEST(HeldRows, OfTwoStreamsAtAnyAlignment) { expect_held_alone(add_norm_of("5", "20001", "bf16"), 8, 4, true); }
// 32-bit rows with masks of bytes beside.
TEST(HeldRows, MasksByASmallBlock) {
  expect_held_alone(masked_softmax_of("5", "3001", "f32"), 8, 2, true);
  expect_held_alone(masked_softmax_of("5", "9001", "f32"), 8, 4, true);
}
// What is loaded ahead would take registers that single accesses want.
TEST(HeldRows, EverySecondElementNotAhead) {
  expect_held_alone(softmax_at("5", "24001", "f16", "48002", "2*i1"), 16, 5, false);
}
TEST(HeldRows, OfSeveralAxes) { expect_held_alone(group_norm_of("5", "4", "6144", "bf16"), 8, 11, false); }
// Instead of a tile, much of which would be beyond the row; and of two streams, of which no tile has room.
TEST(HeldRows, OfWideElementsAtAnyAlignment) {
  expect_held_alone(norm_of("5", "9001", "f32"), 16, 2, true);
  expect_held_alone(norm_of("5", "12257", "f32"), 16, 2, true);
  expect_held_alone(add_norm_of("5", "9861", "f32"), 8, 4, false);
  expect_held_alone(add_norm_of("5", "12257", "f32"), 8, 5, false);
}
TEST(HeldRows, JustBelowAPowerOfTwoByASmallBlock) {
  expect_held_alone(softmax_of("4", "32765", "f16"), 8, 8, true);
  expect_held_alone(softmax_of("4", "16383"), 4, 8, true);
}
// Half of a tile is beyond the row, and costs nothing.
TEST(HeldRows, JustBelowAPowerOfTwoNotUpTo32KB) {
  for (const Problem& p : {softmax_of("4", "8191", "f16"), softmax_of("5", "4093", "bf16"), softmax_of("4", "8191")}) {
    auto domain = make_domain(p.graph, p.nest);
    const BlockPlan first = plan_blocks(p.graph, p.nest, *domain, gpu_with(1), {}).front();
    EXPECT_EQ(first.schedule.kind, ScheduleKind::BlockRows) << first.schedule.why;
    EXPECT_GT(first.shift, 1);
    kernel_runner().blocks_only = true;
    expect_same(p, {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
    kernel_runner().blocks_only = false;
  }
}
// Each warp waits for the messages of its own lanes' members.
TEST(HeldRows, TeamsOfMoreMembersThanAWarpHasLanes) {
  const int multiprocessors = 10;
  const Problem p = softmax_of("1", "150008", "f16");
  auto domain = make_domain(p.graph, p.nest);
  const BlockPlan first = plan_blocks(p.graph, p.nest, *domain, gpu_with(multiprocessors), {}).front();
  ASSERT_TRUE(first.messages) << first.schedule.why;
  EXPECT_GT(first.team->as_const().value_or(0), 32) << first.schedule.why;
  kernel_runner().blocks_only = true;
  expect_same(p, {{}}, {.tolerance = 1e-2, .multiprocessors = multiprocessors});
  kernel_runner().blocks_only = false;
}
TEST(HeldRows, NotWhereTooLittleWouldBeHeld) {
  auto keep = [](const Problem& p) {
    auto domain = make_domain(p.graph, p.nest);
    return plan_blocks(p.graph, p.nest, *domain, gpu_with(), {}).front().keep;
  };
  EXPECT_EQ(keep(softmax_of("2048", "36864")), 0);
  EXPECT_EQ(keep(softmax_of("2048", "12288")), 0);         // a tile
  EXPECT_EQ(keep(softmax_of("20000", "8192", "bf16")), 0); // a tile
  EXPECT_EQ(keep(norm_of("2048", "14001", "f32")), 0);     // fills its tile
  EXPECT_EQ(keep(norm_of("2048", "12001", "f32")), 2);
}

} // namespace
} // namespace tessera::test
