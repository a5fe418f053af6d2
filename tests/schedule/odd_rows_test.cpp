// Rows that begin at any alignment, in loops whose first and last tiles stand outside (block_walk.cpp): rows of all
// lengths about a multiple of the tile's.
#include "block_harness.h"
#include "nests.h"

namespace tessera::test {
namespace {

BlockPlan plan_of(const Problem& p, int multiprocessors) {
  auto domain = make_domain(p.graph, p.nest);
  return plan_blocks(p.graph, p.nest, *domain, gpu_with(multiprocessors), {}).front();
}
void expect_loop(const Problem& p, int columns, const RunOptions& how = {}) {
  const BlockPlan plan = plan_of(p, 1);
  ASSERT_TRUE(plan.loop && plan.shift > 1 && plan.keep == 0) << plan.schedule.why;
  EXPECT_EQ(plan.columns, columns) << plan.schedule.why;
  RunOptions alone = how;
  alone.multiprocessors = 1;
  kernel_runner().blocks_only = true;
  expect_same(p, {{}}, alone);
  kernel_runner().blocks_only = false;
}
Problem argmax_of(int rows, int row, const std::string& t) {
  const std::string n = std::to_string(rows), m = std::to_string(row);
  return problem("x: " + t + "[" + n + ", " + m + "]\ny: i64[" + n + "]",
                 "nest argmax outer(i0: " + n + ") row(i1: " + m +
                     ") { %0 = load x[i0, i1] : f32\n %1 = reduce.argmax %0 : i64\n store.row y[i0] = %1 }");
}
Problem variance_of(int rows, int row, const std::string& t) {
  const std::string n = std::to_string(rows), m = std::to_string(row);
  return problem("x: " + t + "[" + n + ", " + m + "]\ny: f32[" + n + "]", "nest variance outer(i0: " + n +
                                                                              ") row(i1: " + m + R"() {
      %0 = load x[i0, i1] : f32
      %1 = reduce.sum %0 : f32
      %2 = index )" + m + R"( : i64
      %3 = cast %2 : f32
      %4 = div %1, %3 : f32
      %5 = sub %0, %4 : f32
      %6 = mul %5, %5 : f32
      %7 = reduce.sum %6 : f32
      %8 = div %7, %3 : f32
      store.row y[i0] = %8
    })");
}

TEST(OddRows, PositionsInSmallBlocks) {
  for (int row : {3587, 4091, 4101, 4606, 4607, 5117, 6143})
    expect_loop(argmax_of(11, row, "f16"), 1024, {.specials = true});
}
TEST(OddRows, PositionsInATileUpTo7KB) {
  for (int row : {2049, 2501, 3065, 3071, 3584}) {
    const Problem p = argmax_of(11, row, "f16");
    const BlockPlan plan = plan_of(p, 1);
    EXPECT_EQ(plan.schedule.kind, ScheduleKind::BlockRows) << plan.schedule.why;
    EXPECT_EQ(plan.shift, row % 8 ? 8 : 1);
    expect_same(p, {{}}, {.specials = true, .multiprocessors = 1});
  }
}
TEST(OddRows, OnlineSumsInSmallBlocks) {
  for (int row : {12289, 13305, 13306, 13311}) expect_loop(variance_of(9, row, "bf16"), 1024, {.tolerance = 1e-3});
  expect_loop(variance_of(9, 20011, "f16"), 4096, {.tolerance = 1e-3});
}
TEST(OddRows, ThereAndBack) {
  for (int row : {32771, 36857, 36858, 36859, 36863})
    expect_loop(masked_softmax_of("5", std::to_string(row), "f16"), 8192, {.tolerance = 1e-2});
}
// All but one tile of a row, where some rows have a tile more than others by where they begin.
TEST(OddRows, NearlyHeld) {
  for (const char* row : {"32709", "32761"}) {
    const Problem p = softmax_of("5", row, "f16");
    EXPECT_EQ(plan_of(p, 1).keep, 6);
    kernel_runner().blocks_only = true;
    expect_same(p, {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
    kernel_runner().blocks_only = false;
  }
}
// Two streams of 32 bits; of whole accesses one of 32 bits with a gain, and two of 16 with gain and bias: held, where a
// tile would leave few threads.
TEST(OddRows, TwoStreamsAndGainsAreHeld) {
  for (const Problem& p :
       {add_norm_of("5", "8051", "f32"), add_norm_of("5", "5123", "f32"), add_norm_of("5", "17203", "f32"),
        norm_of("5", "10024", "f32"), layer_norm("10912", "f16", "5", "1"), layer_norm("4501", "f32", "5", "1")}) {
    const BlockPlan plan = plan_of(p, 1);
    EXPECT_TRUE(plan.loop && plan.keep > 0) << plan.schedule.why;
    kernel_runner().blocks_only = true;
    expect_same(p, {{}}, {.tolerance = 2e-2, .multiprocessors = 1});
    kernel_runner().blocks_only = false;
  }
}
// Masks of bytes would begin at lines of their own.
TEST(OddRows, MasksBesideShortRowsOf32BitsAreNotShifted) {
  EXPECT_EQ(plan_of(masked_softmax_of("9", "2001", "f32"), 1).shift, 1);
  EXPECT_EQ(plan_of(masked_softmax_of("9", "2001", "f16"), 1).shift, 8);
  kernel_runner().blocks_only = true;
  expect_same(masked_softmax_of("9", "2001", "f32"), {{}}, {.tolerance = 1e-3, .multiprocessors = 1});
  kernel_runner().blocks_only = false;
}
// Tiles begin at lines. What begins at another access of the same line modulo 16 bytes is whole accesses as well.
TEST(OddRows, SeveralTilesBeginAtLines) {
  EXPECT_EQ(plan_of(softmax_of("5", "20473", "f16"), 1).shift, 64);
  EXPECT_EQ(plan_of(softmax_of("5", "30001", "f32"), 1).shift, 32);
  EXPECT_EQ(plan_of(softmax_of("5", "1999", "f16"), 1).shift, 8); // one tile
  const Problem apart = problem("x: f16[5, 20473]\nr: f16[5, 20481]\ny: f16[5, 20473]",
                                R"(nest apart outer(i0: 5) row(i1: 20473) {
      %0 = load x[i0, i1] : f32
      %1 = load r[i0, i1 + 8] : f32
      %2 = add %0, %1 : f32
      %3 = reduce.max %2 : f32
      %4 = sub %2, %3 : f32
      %5 = exp %4 : f32
      %6 = reduce.sum %5 : f32
      %7 = div %5, %6 : f32
      store y[i0, i1] = %7
    })");
  EXPECT_EQ(plan_of(apart, 1).shift, 64);
  kernel_runner().blocks_only = true;
  expect_same(apart, {{}}, {.multiprocessors = 1});
  kernel_runner().blocks_only = false;
}
TEST(OddRows, MasksOfThreeTilesAreReadAgain) {
  const BlockPlan again = plan_of(masked_softmax_of("7", "21909", "f32"), 1),
                  held = plan_of(masked_softmax_of("7", "28001", "f32"), 1);
  EXPECT_EQ(again.keep, 0);
  EXPECT_EQ(again.columns, 8192);
  EXPECT_EQ(again.min_blocks, 2);
  EXPECT_GT(held.keep, 0);
  expect_loop(masked_softmax_of("7", "21909", "f32"), 8192);
}
TEST(OddRows, MasksOfShortTilesAreReadAgain) {
  for (int row : {4201, 5119, 5121, 5701})
    expect_loop(masked_softmax_of("7", std::to_string(row), "bf16"), 1024, {.tolerance = 1e-2});
  for (int row : {9001, 11003})
    expect_loop(masked_softmax_of("7", std::to_string(row), "f16"), 2048, {.tolerance = 1e-2});
  auto tile = [](const char* row) { return plan_of(masked_softmax_of("10000", row, "f16"), 132).schedule.kind; };
  EXPECT_EQ(tile("5701"), ScheduleKind::BlockLoop);
  EXPECT_EQ(tile("6100"), ScheduleKind::BlockRows); // fills three quarters of it
  EXPECT_EQ(tile("2501"), ScheduleKind::BlockRows);
  auto blocks = [](const char* rows) { return plan_of(masked_softmax_of(rows, "9001", "f16"), 132).min_blocks; };
  EXPECT_EQ(blocks("1000"), 8); // all rows at a time
  EXPECT_EQ(blocks("6000"), 6);
}
// A multiprocessor has one of few rows: its block has all registers.
TEST(OddRows, FewHaveTheRegistersToThemselves) {
  auto blocks = [](const char* rows) { return plan_of(softmax_of(rows, "12001"), 132).min_blocks; };
  EXPECT_EQ(blocks("132"), 0);
  EXPECT_GT(blocks("133"), 0);
}
// Rows of several axes, of which the inner one is no multiple of 16 bytes: the row may be one, or one of 8.
TEST(OddRows, AccessesOfSeveralAxes) {
  auto run = [](const char* channels, const char* pixels, const char* t) {
    return plan_of(group_norm_of("9", channels, pixels, t), 1).run;
  };
  EXPECT_EQ(run("3", "12504", "bf16"), 8);
  EXPECT_EQ(run("4", "12502", "bf16"), 8);
  EXPECT_EQ(run("3", "12500", "bf16"), 4);
  EXPECT_EQ(run("4", "12501", "f32"), 4);
  EXPECT_EQ(run("3", "12502", "f32"), 2);
  kernel_runner().blocks_only = true;
  for (const char* t : {"bf16", "f32"})
    for (const char* channels : {"3", "4"})
      for (const char* pixels : {"12500", "12501", "12502"})
        expect_same(group_norm_of("9", channels, pixels, t), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  for (const char* all : {"500", "502"}) // one run, and channels that do not follow each other
    expect_same(group_norm_of("9", "4", "500", "f16", all), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  kernel_runner().blocks_only = false;
}
// The same of rows that teams share: a thread folds what it loads, and nothing goes through shared memory for that.
TEST(OddRows, TeamsOfSeveralAxes) {
  auto run = [](const char* pixels) {
    const BlockPlan plan = plan_of(group_norm_of("5", "4", pixels, "bf16"), 8);
    EXPECT_TRUE(plan.team) << plan.schedule.why;
    return plan.run;
  };
  EXPECT_EQ(run("25004"), 8);
  EXPECT_EQ(run("25002"), 8);
  EXPECT_EQ(run("25003"), 4);
  kernel_runner().blocks_only = true;
  for (const char* pixels : {"25002", "25003", "25004"})
    expect_same(group_norm_of("5", "4", pixels, "bf16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 8});
  kernel_runner().blocks_only = false;
}
TEST(OddRows, LoadsOfWhatIsReadOnceAreTold) {
  EXPECT_EQ(plan_of(variance_of(3541, 12347, "f16"), 132).reads, tile::Caching::Passing);
  EXPECT_EQ(plan_of(variance_of(20000, 3001, "f16"), 132).reads, tile::Caching::Passing); // a tile each
  EXPECT_EQ(plan_of(argmax_of(20000, 2501, "bf16"), 132).reads, tile::Caching::Passing);
  EXPECT_EQ(plan_of(softmax_of("10000", "6001"), 132).reads, tile::Caching::Lasting);        // stored again
  EXPECT_EQ(plan_of(add_norm_of("20000", "2227", "f16"), 132).reads, tile::Caching::Normal); // of two streams
  EXPECT_EQ(plan_of(softmax_of("300", "100001", "f16"), 132).reads, tile::Caching::Passing); // a team holds each
  EXPECT_EQ(plan_of(softmax_of("300", "100008", "f16"), 132).reads, tile::Caching::Lasting);
  EXPECT_EQ(plan_of(softmax_of("300", "100001", "f32"), 132).reads, tile::Caching::Lasting);
}
TEST(OddRows, ResidentBlocksThatLeaveFewIdle) {
  auto blocks = [](int rows) { return plan_of(variance_of(rows, 100003, "bf16"), 132).min_blocks; };
  EXPECT_EQ(blocks(700), 6);  // all of them at a time
  EXPECT_EQ(blocks(1000), 4); // 1.9 turns; 1.5 of five blocks
  EXPECT_EQ(blocks(2500), 5);
  EXPECT_EQ(blocks(100000), 0);
}
TEST(OddRows, ShortOnesOfABlockEach) {
  auto shift = [](const char* row, const char* t) { return plan_of(softmax_of("30000", row, t), 132).shift; };
  EXPECT_EQ(shift("999", "f16"), 8);
  EXPECT_EQ(shift("257", "f16"), 1);
  EXPECT_EQ(shift("401", "f32"), 1);
  expect_same(softmax_of("5", "999", "f16"), {{}}, {});
}
// A short fold of columns that are accessed one by one: a thread has all of a column, beside the next one's.
TEST(OddRows, ShortColumnsSideBySide) {
  const Problem p = problem("x: f16[28, 1501]\ny: f16[1501]", R"(nest fold outer(i0: 1501) row(i1: 28) {
      %0 = load x[i1, i0] : f32
      %1 = reduce.sum %0 : f32
      store.row y[i0] = %1
    })");
  const BlockPlan plan = plan_of(p, 1);
  EXPECT_EQ(plan.rows, 32) << plan.schedule.why;
  EXPECT_EQ(plan.columns, 256) << plan.schedule.why;
  EXPECT_FALSE(plan.loop);
  expect_same(p, {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
}
// Too short for whole accesses along them, of which the first and the last one are taken apart.
TEST(OddRows, TransposesOfShortRows) {
  auto transposed = [](int rows, int row, const std::string& t) {
    const std::string n = std::to_string(rows), m = std::to_string(row);
    return problem("x: " + t + "[" + m + ", " + n + "]\nz: " + t + "[" + n + ", " + m + "]\ny: " + t + "[" + n + ", " +
                       m + "]",
                   "nest t outer(i0: " + n + ", i1: " + m +
                       ") { %0 = load x[i1, i0] : f32\n %1 = load z[i0, i1] : f32\n %2 = add %0, %1 : f32\n "
                       "store y[i0, i1] = %2 }");
  };
  auto staged = [&](int row, const char* t) { return plan_of(transposed(200001, row, t), 132).staged; };
  EXPECT_FALSE(staged(75, "f16"));
  EXPECT_FALSE(staged(125, "bf16"));
  EXPECT_TRUE(staged(201, "f16"));
  EXPECT_TRUE(staged(37, "f32"));
  expect_same(transposed(300, 101, "f16"), {{}}, {});
  expect_same(transposed(40, 808, "f16"), {{}}, {}); // all of the short side in a tile
  expect_same(transposed(808, 40, "f16"), {{}}, {});
}

} // namespace
} // namespace tessera::test
