// Kernels that share nothing but their number of points: one launch where that is more expensive than what they move.
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

using Sizes = std::vector<std::map<std::string, int64_t>>;

FusionOptions on_gpu() {
  FusionOptions options = generated();
  options.launch_us = 2;
  options.bytes_per_us = 4e6; // 8 MB
  return options;
}

FusionPlan planned(const std::string& text, size_t kernels, const Sizes& sizes = {{}},
                   const FusionOptions& options = on_gpu(), std::string* printed = nullptr) {
  Graph g = parsed(text);
  auto plan = check_plan(g, sizes, options);
  if (printed) *printed = print(g, plan);
  EXPECT_EQ(plan.groups.size(), kernels) << print(g, plan);
  return plan;
}

TEST(SideBySide, AsManyPointsInWhateverShape) {
  const std::string text =
      R"(graph @main(%x: f32[12, 64], %u: f32[768], %v: f32[6, 128]) -> (%y: f32[12, 64], %w: f32[768], %z: f32[128, 6]) {
  %y = exp(%x) : f32[12, 64]
  %w = neg(%u) : f32[768]
  %t = transpose(%v) perm=[1, 0] : f32[128, 6]
  %z = abs(%t) : f32[128, 6]
})";
  auto plan = planned(text, 2); // [128, 6] has no common refinement with [12, 64]
  ASSERT_EQ(plan.pairs.size(), 2u);
  EXPECT_EQ(plan.pairs[0].reason, FusionReason::HorizontalFusion);
  EXPECT_EQ(fusion::detail_text(Graph(), plan.pairs[0].detail), "6.1 kB and 6.1 kB, a launch is worth 8.0 MB");
  EXPECT_EQ(plan.pairs[1].reason, FusionReason::DifferentIterationSpace);
  planned(text, 3, {{}}, generated());
}

TEST(SideBySide, RowsOfAsManyElements) {
  planned(
      R"(graph @main(%x: f32[b, 8], %u: f32[b, 8], %v: f32[b, 4]) -> (%y: f32[b], %w: f32[b, 8], %z: f32[b]) where b in [1, ?] {
  %y = reduce_sum(%x) axes=[1] keepdims=0 : f32[b]
  %m = reduce_max(%u) axes=[1] keepdims=1 : f32[b, 1]
  %w = sub(%u, %m) : f32[b, 8]
  %z = reduce_sum(%v) axes=[1] keepdims=0 : f32[b]
})",
      2, {{{"b", 1}}, {{"b", 5}}});
}

TEST(SideBySide, ManyAreOneUntilTheKernelIsFull) {
  std::string inputs, outputs, body;
  for (int i = 0; i < 20; ++i) {
    auto n = std::to_string(i);
    inputs += (i ? ", %x" : "%x") + n + ": f32[10]";
    outputs += (i ? ", %y" : "%y") + n + ": f32[10]";
    body += "  %y" + n + " = exp(%x" + n + ") : f32[10]\n";
  }
  auto plan = planned("graph @main(" + inputs + ") -> (" + outputs + ") {\n" + body + "}", 2); // 12 and 8 of 2 buffers
  EXPECT_EQ(plan.pairs.back().reason, FusionReason::HorizontalFusion);
}

TEST(SideBySide, NotWhereOneNeedsTheOther) {
  planned(R"(graph @main(%x: f32[4, 4], %u: f32[4, 4]) -> (%y: f32[4, 4], %w: f32[4, 4]) {
  %a = exp(%x) : f32[4, 4]
  %m = matmul(%a, %a) : f32[4, 4]
  %n = matmul(%m, %m) : f32[4, 4]
  %s = reduce_sum(%n) axes=[1] keepdims=1 : f32[4, 1]
  %y = div(%n, %s) : f32[4, 4]
  %w = neg(%u) : f32[4, 4]
})",
          4); // exp with neg, two products, the rows
}

TEST(SideBySide, NotWhereTheyMoveMoreThanALaunchIsWorth) {
  const std::string text =
      R"(graph @main(%x: f32[1000, s], %u: f32[1000, s]) -> (%y: f32[1000, s], %w: f32[1000, s]) where s in [S] {
  %y = exp(%x) : f32[1000, s]
  %w = neg(%u) : f32[1000, s]
})";
  auto at = text.find("[S]");
  std::string small = text, large = text;
  planned(small.replace(at, 3, "[1, 400]"), 1, {{{"s", 2}}}); // 128 of them: 2 MB
  std::string printed;
  auto plan = planned(large.replace(at, 3, "[800, ?]"), 2, {{{"s", 800}}}, on_gpu(), &printed);
  ASSERT_EQ(plan.pairs.size(), 1u);
  EXPECT_EQ(plan.pairs[0].reason, FusionReason::NoGain);
  EXPECT_NE(printed.find("6.4 MB and 6.4 MB, a launch is worth 8.0 MB: together they move more"), std::string::npos)
      << printed;
}

} // namespace
} // namespace tessera
