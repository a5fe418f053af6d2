// Sums that are folded with what they depend on: the same values as in two loops, also where these are no numbers.
#include "block_harness.h"
#include "codegen/schedule/online.h"
#include "codegen/target/select.h"
#include "nests.h"

namespace tessera::test {
namespace {

std::vector<Sizes> rows() {
  std::vector<Sizes> sizes;
  for (int64_t s : {0, 1, 2, 7, 8, 9, 31, 70}) sizes.push_back({{"b", 3}, {"s", s}});
  return sizes;
}
Problem over_rows(const std::string& dtype, const std::string& body) {
  return problem("x: " + dtype + "[b, s]\nw: " + dtype + "[s]\ny: " + dtype + "[b]",
                 "nest sums outer(i0: b) row(i1: s) {\n%0 = load x[i0, i1] : " + dtype +
                     "\n%1 = load w[i1] : " + dtype + "\n" + body + "}");
}
Problem weighted_exponentials(const std::string& t) {
  return over_rows(t, "%2 = reduce.max %0 : " + t + "\n%3 = sub %0, %2 : " + t + "\n%4 = exp %3 : " + t +
                          "\n%5 = mul %4, %1 : " + t + "\n%6 = reduce.sum %5 : " + t + "\n store.row y[i0] = %6\n");
}
Problem squares(const std::string& t, const std::string& about) {
  return over_rows(t, "%10 = const 100 : " + t + "\n%2 = add %0, %10 : " + t + "\n%3 = reduce." + about + " %2 : " + t +
                          "\n%4 = const 0.03 : " + t + "\n%5 = mul %3, %4 : " + t + "\n%6 = sub %2, %5 : " + t +
                          "\n%7 = mul %6, %6 : " + t + "\n%8 = reduce.sum %7 : " + t + "\n store.row y[i0] = %8\n");
}
// The number of loops in the schedule with the fewest, of those that loop over a row of these sizes.
int loops(const Problem& p) {
  int least = 100;
  auto take = [](const Schedule& s) { return s.kind == ScheduleKind::BlockLoop && s.traversal.online; };
  each_kernel({p, {{"b", 1000}, {"s", 70000}, {"w", 70000}, {"n", 1000}}}, shipped_target("h200"), take,
              [&](const Legal&, const ScheduledKernel& k) {
                const std::string text = tile::print(k.kernel);
                int n = 0;
                for (size_t at = text.find(" for %"); at != std::string::npos; at = text.find(" for %", at + 1)) ++n;
                least = std::min(least, n);
              });
  return least;
}

TEST(Online, SoftmaxOfRowsThatHoldInfinitiesAndNan) {
  expect_same(softmax(), rows(), {.specials = true});
  expect_same(softmax("f16"), rows(), {.tolerance = 2e-3, .specials = true});
}
TEST(Online, WeightsAreNotReadBeyondTheRow) {
  for (const char* t : {"f32", "f64"}) {
    expect_same(weighted_exponentials(t), rows());
    expect_same(weighted_exponentials(t), rows(), {.specials = true});
  }
}
TEST(Online, SquaresAboutAnyNumberOfTheRow) {
  for (const char* about : {"sum", "max"})
    for (const char* t : {"f32", "f64"}) expect_same(squares(t, about), rows(), {.tolerance = 1e-4});
}
TEST(Online, AChainOfThreeRounds) { // log-softmax, and the variance of what it yields
  expect_same(problem("x: f32[b, s]\nv: f32[b]\ny: f32[b, s]", R"(
    nest chain outer(i0: b) row(i1: s) {
      %0 = load x[i0, i1] : f32
      %1 = reduce.max %0 : f32
      %2 = sub %0, %1 : f32
      %3 = exp %2 : f32
      %4 = reduce.sum %3 : f32
      %5 = log %4 : f32
      %6 = sub %2, %5 : f32
      %7 = reduce.sum %6 : f32
      %8 = const 0.1 : f32
      %9 = mul %7, %8 : f32
      %10 = sub %6, %9 : f32
      %11 = mul %10, %10 : f32
      %12 = reduce.sum %11 : f32
      store y[i0, i1] = %10
      store.row v[i0] = %12
    })"),
              rows(), {.tolerance = 1e-4});
}
TEST(Online, RowsAreReadTwice) {
  EXPECT_EQ(loops(softmax()), 2);
  EXPECT_LE(loops(layer_norm("70001")), 2);
  EXPECT_EQ(loops(weighted_exponentials("f32")), 1);
  EXPECT_EQ(loops(squares("f32", "max")), 1);
}
TEST(Online, ReferencesAreShared) {
  Problem p = softmax();
  auto domain = make_domain(p.graph, p.nest);
  ASSERT_TRUE(domain.ok());
  OnlineSums online = find_online(p.nest, *domain);
  Stages stages = plan_stages(p.nest, *domain);
  ASSERT_EQ(stages.stages.size(), 2u);
  FoldState state = fold_state(p.nest, stages.stages[0].reduces, online);
  EXPECT_EQ(state.dtypes.size(), 2u); // the maximum and the sum
  ASSERT_EQ(state.parts.size(), 2u);
  EXPECT_EQ(state.parts[1].reference, state.parts[0].first);
  EXPECT_EQ(state.count, -1);
}

} // namespace
} // namespace tessera::test
