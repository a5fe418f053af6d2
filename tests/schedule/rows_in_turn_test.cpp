// Short rows that a program takes in turn, their loads copied to shared memory at once (docs/schedules.md).
#include "block_harness.h"
#include "nests.h"

namespace tessera::test {
namespace {

// Rows and elements of a tile on so many warps, so many of them one after the other.
struct Wanted {
  int rows, columns, warps, turns = 2;
};
void expect_in_turn(const Problem& p, const Wanted& w, double tolerance) {
  auto domain = make_domain(p.graph, p.nest);
  const BlockPlan first = plan_blocks(p.graph, p.nest, *domain, gpu_with(1), {}).front();
  EXPECT_EQ(first.turns, w.turns) << first.schedule.why;
  EXPECT_EQ(first.rows, w.rows) << first.schedule.why;
  EXPECT_EQ(first.columns, w.columns);
  EXPECT_EQ(first.warps, w.warps);
  kernel_runner().blocks_only = true;
  expect_same(p, {{}}, {.tolerance = tolerance, .multiprocessors = 1});
  kernel_runner().blocks_only = false;
}

TEST(RowsInTurn, ABlockOrAWarpARow) {
  expect_in_turn(softmax_of("32", "1024", "bf16"), {1, 1024, 2}, 1e-2);
  expect_in_turn(softmax_of("57", "1024", "bf16"), {1, 1024, 1}, 1e-2); // so many that a warp a row is enough
  expect_in_turn(norm_of("64", "512", "f16"), {2, 512, 2}, 2e-3);
  expect_in_turn(norm_of("8", "4096", "f16"), {1, 4096, 8}, 2e-3);
  expect_in_turn(group_norm_of("128", "64", "4", "f16"), {4, 256, 2}, 5e-3); // an access of two channels
}
TEST(RowsInTurn, NumbersOfRowsThatLeaveTilesIdle) {
  expect_in_turn(softmax_of("31", "1024", "f16"), {1, 1024, 2}, 2e-3); // half of the last program's
  expect_in_turn(softmax_of("117", "256", "bf16"), {4, 256, 2}, 1e-2); // a part of the last tile's
  expect_in_turn(softmax_of("233", "128", "bf16"), {8, 128, 2}, 1e-2);
}
TEST(RowsInTurn, FourWhereGainsAreReadForThem) {
  expect_in_turn(norm_of("47", "1024", "f16"), {1, 1024, 2, 4}, 2e-3);
  expect_in_turn(add_norm_of("29", "1024", "f16"), {1, 1024, 4, 2}, 5e-3); // of two streams less of each
}
// As many elements for each warp as that makes 1024.
TEST(RowsInTurn, AWarpEachWhereMuchIsMoved) {
  auto chosen = [](const Problem& p) {
    auto domain = make_domain(p.graph, p.nest);
    const BlockPlan first = plan_blocks(p.graph, p.nest, *domain, gpu_with(132), {}).front();
    return std::array{first.rows, first.columns, first.warps, first.turns};
  };
  EXPECT_EQ(chosen(softmax_of("65536", "256", "bf16")), (std::array{4, 256, 1, 2}));
  EXPECT_EQ(chosen(softmax_of("32768", "512", "f16")), (std::array{2, 512, 1, 2}));
  EXPECT_EQ(chosen(softmax_of("12000", "2048", "f16")), (std::array{1, 2048, 2, 2}));
  EXPECT_EQ(chosen(add_norm_of("8192", "1024", "bf16")), (std::array{1, 1024, 1, 2}));
  EXPECT_EQ(chosen(norm_of("8192", "4096", "bf16")), (std::array{1, 4096, 8, 2})); // a gain is read once for two
  for (const Problem& p : {softmax_of("131", "256", "bf16"), add_norm_of("9", "1024", "bf16")})
    expect_same(p, {{}}, {.tolerance = 2e-2, .multiprocessors = 1});
}
TEST(RowsInTurn, NotWhereTheGpuWouldBeIdleOrRowsAreLong) {
  auto turns = [](const Problem& p, int multiprocessors = 1) {
    auto domain = make_domain(p.graph, p.nest);
    return plan_blocks(p.graph, p.nest, *domain, gpu_with(multiprocessors), {}).front().turns;
  };
  EXPECT_EQ(turns(softmax_of("27", "1024", "bf16")), 1);
  EXPECT_EQ(turns(softmax_of("32", "1024", "bf16"), 132), 1);
  EXPECT_EQ(turns(softmax_of("8192", "1024", "bf16"), 132), 2);
  EXPECT_EQ(turns(softmax_of("16384", "1024", "bf16"), 132), 2); // more than the L2 holds
  EXPECT_EQ(turns(softmax_of("32768", "1024", "bf16"), 132), 1); // much more
  EXPECT_EQ(turns(softmax_of("64", "8192", "bf16")), 1);
  EXPECT_EQ(turns(softmax_of("64", "256", "f32")), 1);
  EXPECT_EQ(turns(group_norm_of("128", "64", "4", "f16", "8")), 1); // accesses of 8 bytes
  EXPECT_EQ(turns(group_norm_of("128", "32", "8", "f16", "16")), 2);
  EXPECT_EQ(turns(softmax_of("64", "999", "bf16")), 1); // rows begin anywhere
  EXPECT_EQ(turns(softmax_of("64", "768", "bf16")), 1); // a part of the tile would be idle
}

} // namespace
} // namespace tessera::test
