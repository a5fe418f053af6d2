// Few long rows that several programs share: where, how, and that results are the same in every run.
#include "block_harness.h"
#include "nests.h"
#include <algorithm>

namespace tessera::test {
namespace {

// "team 16 [1, 8192] in registers, waits | ...": of each kernel that teams run, then how many others there are.
std::string summary(const Problem& p) {
  std::string s;
  int others = 0;
  auto domain = make_domain(p.graph, p.nest);
  for (const BlockPlan& plan : plan_blocks(p.graph, p.nest, *domain, gpu_with(), {})) {
    if (!plan.team) {
      ++others;
      continue;
    }
    s += (s.empty() ? "" : " | ") + plan.team->str() + " [" + std::to_string(plan.rows) + ", " +
         std::to_string(plan.columns) + "]" + (plan.loop ? "" : " once") +
         (plan.keep > 0 ? " keeps " + std::to_string(plan.keep) : "") +
         (plan.messages ? " tells"
          : plan.waits  ? " waits"
                        : "");
    for (const SizeCondition& c : plan.conditions) {
      if (c.min > 0) s += " " + std::to_string(c.min) + "<=" + c.value.str();
      if (c.max < INT64_MAX) s += " " + c.value.str() + "<=" + std::to_string(c.max);
      if (c.multiple_of > 1) s += " " + c.value.str() + "%" + std::to_string(c.multiple_of);
    }
  }
  return s + (s.empty() ? "" : " + ") + std::to_string(others);
}

Problem fold(const std::string& kind, const std::string& rows, const std::string& row,
             const std::string& dtype = "f32") {
  return problem("x: " + dtype + "[" + rows + ", " + row + "]\ny: f32[" + rows + "]",
                 "nest fold outer(i0: " + rows + ") row(i1: " + row + ") { %0 = load x[i0, i1] : f32\n %1 = reduce." +
                     kind + " %0 : f32\n store.row y[i0] = %1 }");
}
Problem columns(const std::string& rows, const std::string& width) {
  return problem("x: f32[" + rows + ", " + width + "]\ny: f32[" + width + "]",
                 "nest columns outer(i0: " + width + ") row(i1: " + rows +
                     ") { %0 = load x[i1, i0] : f32\n %1 = reduce.sum %0 : f32\n store.row y[i0] = %1 }");
}
// Mean and variance.
Problem moments(const std::string& rows, const std::string& row) {
  return problem("x: f32[" + rows + ", " + row + "]\nm: f32[" + rows + "]\nv: f32[" + rows + "]",
                 "nest moments outer(i0: " + rows + ") row(i1: " + row + R"() {
      %0 = load x[i0, i1] : f32
      %1 = reduce.sum %0 : f32
      %2 = const 0.001 : f32
      %3 = mul %1, %2 : f32
      %4 = sub %0, %3 : f32
      %5 = mul %4, %4 : f32
      %6 = reduce.sum %5 : f32
      store.row m[i0] = %3
      store.row v[i0] = %6
    })");
}
Problem argmax(const std::string& rows, const std::string& row, const std::string& dtype = "f32") {
  return problem("x: " + dtype + "[" + rows + ", " + row + "]\ny: i64[" + rows + "]",
                 "nest best outer(i0: " + rows + ") row(i1: " + row +
                     ") { %0 = load x[i0, i1] : f32\n %1 = reduce.argmax %0 : i64\n store.row y[i0] = %1 }");
}

TEST(BlockTeam, WhereRowsAreFewAndLong) {
  EXPECT_EQ(summary(fold("sum", "1", "67108864")), "4096 [1, 16384] once + 0");
  EXPECT_EQ(summary(fold("sum", "1", "16777216")), "528 [1, 8192] + 0"); // four waves of programs would be less
  EXPECT_EQ(summary(columns("65536", "1024")), "66 [32, 64] + 0");
  EXPECT_EQ(summary(fold("sum", "8192", "4096")), "1");                 // enough rows
  EXPECT_EQ(summary(fold("sum", "1", "30000")), "1");                   // short
  EXPECT_EQ(summary(fold("sum", "64", "40960")), "1");                  // half of the multiprocessors, not long
  EXPECT_EQ(summary(columns("512", "16384")), "1");                     // many columns
  EXPECT_EQ(summary(fold("sum", "1", "1000003")).substr(0, 3), "245");  // any length
  EXPECT_EQ(summary(fold("sum", "16", "4194305")), "33 [1, 4096] + 0"); // each tile of which would have masks
}

TEST(BlockTeam, ProgramsWaitWhereElementsNeedTheResult) {
  EXPECT_EQ(summary(softmax_of("4", "1048576")), "66 [1, 4096] keeps 3 tells + 1"); // as much as it has
  // Of 16-bit elements smaller blocks, but for rows that just fill large ones.
  EXPECT_EQ(summary(softmax_of("16", "900000", "bf16")), "33 [1, 4096] keeps 6 tells + 1");
  EXPECT_EQ(summary(softmax_of("16", "1048576", "bf16")), "16 [1, 16384] keeps 3 tells + 1");
  EXPECT_EQ(summary(softmax_of("4", "1048576", "bf16")), "64 [1, 16384] once tells + 1");
  EXPECT_EQ(summary(softmax_of("7", "1048576", "bf16")), "75 [1, 4096] keeps 3 tells + 1");
  EXPECT_EQ(summary(softmax_of("16", "65536")), "16 [1, 4096] once tells + 1");
  EXPECT_EQ(summary(moments("4", "1048576")).find("waits"), std::string::npos); // one round, online
  EXPECT_EQ(summary(argmax("4", "1048576")).find("waits"), std::string::npos);
  EXPECT_EQ(summary(argmax("14", "524288")), "37 [1, 4096] + 0"); // with twice the registers of a sum's
  EXPECT_EQ(summary(argmax("23", "524288", "bf16")), "22 [1, 8192] + 0");
  // Few tiles of shifted rows.
  EXPECT_EQ(summary(softmax_of("3", "1000003")), "88 [1, 4096] keeps 2 tells + 1");
  // A block's share of one row, and of which all programs hold all.
  expect_same(softmax_of("1", "98304", "bf16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
}

// Not all of them run at a time; a row is read once.
TEST(BlockTeam, RowsThatTheGpuDoesNotHoldAtOnceAreHeldByTheirTeams) {
  EXPECT_EQ(summary(softmax_of("100", "200000")), "13 [1, 4096] keeps 3 waits + 1");
  EXPECT_EQ(summary(softmax_of("3000", "200000")), "13 [1, 4096] keeps 3 waits + 1");
  EXPECT_EQ(summary(softmax_of("16", "1048576")), "64 [1, 4096] keeps 3 waits + 1"); // a large team
  EXPECT_EQ(summary(softmax_of("3000", "200001")), "14 [1, 2048] keeps 6 waits + 1");
  EXPECT_EQ(summary(softmax_of("520", "40000")), "3 [1, 4096] keeps 3 tells + 1");
  EXPECT_EQ(summary(softmax_of("300", "100001", "f16")), "7 [1, 2048] keeps 6 tells + 1"); // small blocks for the masks
  // Of two streams, or with a gain: what was fastest of some twenty candidates.
  EXPECT_EQ(summary(add_norm_of("1533", "41641", "f16")), "3 [1, 2048] keeps 6 tells + 1");
  EXPECT_EQ(summary(add_norm_of("2000", "50001", "f16")), "7 [1, 1024] keeps 6 tells + 1"); // fills its teams
  EXPECT_EQ(summary(add_norm_of("191", "77593", "f16")), "11 [1, 1024] keeps 6 waits + 1"); // two turns, not 2.2
  EXPECT_EQ(summary(add_norm_of("14", "709043", "f16")), "87 [1, 2048] keeps 3 waits + 1"); // too long for large shares
  EXPECT_EQ(summary(add_norm_of("177", "64997", "f16")), "8 [1, 2048] keeps 3 tells + 1");  // 1.7 turns of large ones
  EXPECT_EQ(summary(add_norm_of("248", "432888", "f32")), "106 [1, 2048] keeps 1 waits + 1");
  EXPECT_EQ(summary(add_norm_of("300", "100001", "f32")), "14 [1, 1024] keeps 6 waits + 1");
  // Few more rows than multiprocessors, which all programs hold at a time.
  EXPECT_EQ(summary(add_norm_of("157", "27109", "f32")), "3 [1, 2048] keeps 4 tells + 1");
  EXPECT_EQ(summary(add_norm_of("150", "30001", "f32")), "7 [1, 1024] keeps 4 tells + 1");
  EXPECT_EQ(summary(add_norm_of("200", "45001", "f16")), "5 [1, 1024] keeps 6 tells + 1");
  EXPECT_EQ(summary(add_norm_of("140", "60001", "f32")), "15 [1, 1024] keeps 3 waits + 1"); // 83 % of them
  // With a gain.
  EXPECT_EQ(summary(norm_of("173", "256087", "bf16")), "9 [1, 4096] keeps 6 waits + 1");
  EXPECT_EQ(summary(norm_of("100", "300001", "f16")), "21 [1, 2048] keeps 6 waits + 1"); // 3.98 turns, not 2.1
  EXPECT_EQ(summary(norm_of("363", "150893", "bf16")), "6 [1, 2048] keeps 12 tells + 1");
  EXPECT_EQ(summary(norm_of("37", "363053", "f32")), "45 [1, 4096] keeps 1 waits + 1");
  EXPECT_EQ(summary(norm_of("500", "65536", "bf16")), "8 [1, 2048] keeps 3 tells + 1"); // as many as are told
  EXPECT_EQ(summary(norm_of("800", "70000", "f16")), "3 [1, 8192] keeps 2 tells + 1");
  EXPECT_EQ(summary(norm_of("800", "56000", "f16")), "1");
  EXPECT_EQ(summary(group_norm_of("4000", "4", "8192", "bf16")), "4 [1, 8192] once tells + 1");
  EXPECT_EQ(summary(group_norm_of("4000", "4", "7000", "bf16")), "1");
  // Of which every second element is read.
  EXPECT_EQ(summary(softmax_at("198", "195077", "f16", "390154", "2*i1")), "4 [1, 4096] keeps 11 tells + 1");
  EXPECT_EQ(summary(softmax_at("40", "500001", "bf16", "1000002", "2*i1")), "62 [1, 2048] keeps 3 waits + 1");
  // A few more rows than multiprocessors, which large shares hold all at a time; with room for the L1 if strided.
  EXPECT_EQ(summary(softmax_of("157", "72810", "bf16")), "3 [1, 4096] keeps 5 tells + 1");
  EXPECT_EQ(summary(softmax_of("170", "72810", "bf16")), "1");
  EXPECT_EQ(summary(softmax_at("160", "70001", "f16", "140002", "2*i1")), "3 [1, 4096] keeps 5 tells + 1");
  EXPECT_EQ(summary(softmax_at("140", "75925", "f16", "151850", "2*i1")), "5 [1, 4096] keeps 3 tells + 1");
  // A block could hold each, but few blocks read slowly.
  EXPECT_EQ(summary(softmax_of("64", "40001", "f16")), "10 [1, 4096] once tells + 1");
  EXPECT_EQ(summary(softmax_of("8", "20000", "bf16")), "1");
  // Masks leave a tile each, in registers.
  EXPECT_EQ(summary(masked_softmax_of("4", "1048576", "f32")), "128 [1, 8192] once tells + 1");
  EXPECT_EQ(summary(masked_softmax_of("113", "54000", "f32")), "14 [1, 4096] once waits + 1"); // three turns
  EXPECT_EQ(summary(masked_softmax_of("321", "131072", "f32")), "16 [1, 8192] once waits + 1");
  EXPECT_EQ(summary(masked_softmax_of("200", "131072", "bf16")), "8 [1, 16384] once tells + 1");
  // Where the last one ends within a tile smaller ones, and loops of teams that are large.
  EXPECT_EQ(summary(masked_softmax_of("400", "60000", "bf16")), "8 [1, 8192] once tells + 1");
  EXPECT_EQ(summary(masked_softmax_of("409", "118200", "bf16")), "6 [1, 4096] keeps 4 tells + 1");
  EXPECT_EQ(summary(masked_softmax_of("109", "267392", "bf16")), "22 [1, 4096] keeps 2 waits + 1");
  EXPECT_EQ(summary(softmax_of("3000", "32768")), "1");                              // better read twice
  EXPECT_EQ(summary(softmax_of("4", "16777216")), "66 [1, 4096] keeps 6 tells + 1"); // more than the GPU holds
}

// A 32-bit row that is stored in 16 bits is one stream, not two narrow ones.
TEST(BlockTeam, RowsThatAreStoredNarrowerAreOneStream) {
  auto narrowed = [](const std::string& rows, const std::string& row) {
    const std::string shape = "[" + rows + ", " + row + "]\n";
    return softmax_nest("x: f32" + shape + "y: f16" + shape, rows, row, "x[i0, i1]");
  };
  EXPECT_EQ(summary(narrowed("200", "45001")), "4 [1, 2048] keeps 5 tells + 1");
  EXPECT_EQ(summary(add_norm_of("200", "45001", "f16")), "5 [1, 1024] keeps 6 tells + 1"); // two are shared at once
  EXPECT_EQ(summary(narrowed("100", "200000")), "13 [1, 8192] keeps 1 waits + 1");
  kernel_runner().blocks_only = true;
  expect_same(narrowed("3", "60001"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  kernel_runner().blocks_only = false;
}

// Columns side by side, so many that teams take nearly all programs.
TEST(BlockTeam, ColumnsOfWhichTeamsLeaveNoProgramIdle) {
  auto softmax = [](int length, int columns, const std::string& t) {
    const std::string n = std::to_string(length), m = std::to_string(columns);
    const std::string shape = t + "[" + n + ", " + m + "]";
    return softmax_nest("x: " + shape + "\ny: " + shape, m, n, "x[i1, i0]", "y[i1, i0]");
  };
  EXPECT_EQ(summary(softmax(9001, 2001, "bf16")), "4 [256, 32] keeps 6 waits + 1");  // 252 programs
  EXPECT_EQ(summary(softmax(12832, 2845, "f16")), "11 [64, 128] keeps 6 waits + 1"); // 178 of 32 columns, 253
  EXPECT_EQ(summary(softmax(12832, 1500, "f16")), "11 [128, 64] keeps 6 waits + 1"); // 235 of 32 columns, 264
  kernel_runner().blocks_only = true;
  expect_same(softmax(2053, 45, "f16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 4});
  kernel_runner().blocks_only = false;
}

TEST(BlockTeam, SizesThatAreNotKnown) {
  EXPECT_EQ(summary(fold("sum", "b", "s")).substr(0, 30), "min(floordiv(s + 8191, 8192), ");
  EXPECT_EQ(summary(softmax_of("b", "s")),
            "floordiv(s + 4095, 4096) [1, 4096] once waits 1<=b b<=132 32768<=s 1<=b*floordiv(s + 4095, 4096) "
            "b*floordiv(s + 4095, 4096)<=264 s%4 | floordiv(264, b) [1, 4096] keeps 7 waits 1<=b b<=132 32768<=s s%4 | "
            "floordiv(264, b) [1, 4096] keeps 7 waits 1<=b b<=132 32768<=s + 7");
  // As many rows as they are long: never few and long.
  EXPECT_EQ(summary(softmax_of("s", "s")).find("waits"), std::string::npos);
}

TEST(BlockTeam, KnownSizesMeanTheSame) {
  kernel_runner().blocks_only = true;
  expect_same(fold("sum", "1", "65536"), {{}}, {.tolerance = 1e-3});
  expect_same(fold("max", "2", "65541"), {{}}, {.specials = true});
  expect_same(argmax("2", "65541"), {{}}, {.specials = true});
  expect_same(columns("4099", "33"), {{}}, {.tolerance = 1e-3});
  expect_same(softmax_of("1", "70001"), {{}}, {.tolerance = 1e-4});
  expect_same(moments("2", "65541"), {{}}, {.tolerance = 1e-3});
  // Rows that begin at any alignment.
  expect_same(softmax_of("2", "65541"), {{}}, {.tolerance = 1e-3});
  expect_same(add_norm_of("2", "65543", "f16"), {{}}, {.tolerance = 1e-2});
  expect_same(masked_softmax_of("3", "65544", "f32"), {{}}, {.tolerance = 1e-4, .multiprocessors = 4});
  expect_same(add_norm_of("4", "41641", "f16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  expect_same(add_norm_of("2", "50001", "f16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  expect_same(add_norm_of("3", "40001", "f32"), {{}}, {.tolerance = 1e-3, .multiprocessors = 2});
  expect_same(masked_softmax_of("4", "90785", "bf16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  expect_same(softmax_of("2", "40001", "f16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 6});
  expect_same(masked_softmax_of("3", "100001", "f16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  expect_same(masked_softmax_of("3", "60000", "f16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  expect_same(norm_of("3", "60001", "f32"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  expect_same(norm_of("3", "65536", "bf16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  expect_same(group_norm_of("3", "4", "8192", "bf16"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  expect_same(softmax_at("3", "100001", "f16", "200002", "2*i1"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  expect_same(softmax_at("2", "200001", "f16", "400002", "2*i1"), {{}}, {.tolerance = 1e-2, .multiprocessors = 1});
  kernel_runner().blocks_only = false;
}

TEST(BlockTeam, AnySizeMeansTheSame) {
  expect_same(fold("sum", "b", "s"), two("b", "s"));
  auto sizes = two("b", "s");
  std::erase_if(sizes, [](const Sizes& s) { return s.at("s") == 0; }); // an empty row has no best element
  expect_same(argmax("b", "s"), sizes, {.specials = true});
  expect_same(columns("n", "c"), two("n", "c"));
  expect_same(softmax_of("b", "s"), two("b", "s"));
  expect_same(moments("b", "s"), two("b", "s"));
  expect_same(add_norm_of("b", "s", "f16"), two("b", "s"), {.tolerance = 1e-2});
}

} // namespace
} // namespace tessera::test
