// Requests of a user: operators that stay apart, breaks, and plans that are pinned.
#include "tests/fusion/harness.h"
#include <algorithm>

namespace tessera {
namespace {

using Sizes = std::vector<std::map<std::string, int64_t>>;

const LedgerEntry& edge(const Graph& graph, const FusionPlan& plan, const std::string& from, const std::string& to) {
  for (const auto& e : plan.ledger)
    if (is_of(graph.node(e.producer).location, from) && is_of(graph.node(e.consumer).location, to)) return e;
  ADD_FAILURE() << "no edge from " << from << " to " << to;
  return plan.ledger.front();
}

FusionOptions apart(const std::string& a, const std::string& b, FusionOptions options = generated()) {
  options.constraints.apart.emplace_back(a, b);
  return options;
}
FusionOptions broken(const std::string& a, FusionOptions options = generated()) {
  options.constraints.breaks.push_back(a);
  return options;
}

// Two operators that fuse by default; with the request they do not, and the edge says so.
void splits(const std::string& text, const Sizes& sizes, const std::string& a, const std::string& b,
            const FusionOptions& options = generated()) {
  SCOPED_TRACE(a + " and " + b);
  Graph whole = parsed(text);
  const auto before = check_plan(whole, sizes, options);
  ASSERT_TRUE(info(edge(whole, before, a, b).reason).fused) << print(whole, before);
  for (const FusionOptions& requested : {apart(a, b, options), apart(b, a, options), broken(a, options)}) {
    Graph g = parsed(text);
    const auto plan = check_plan(g, sizes, requested);
    EXPECT_FALSE(together(g, plan, a, b)) << print(g, plan);
    EXPECT_EQ(edge(g, plan, a, b).reason, FusionReason::KeptApart) << print(g, plan);
    EXPECT_TRUE(edge(g, plan, a, b).bytes_saved.is_const(0));
  }
}

TEST(Constraints, PointwiseOperatorsStayApart) {
  splits(R"(graph @main(%x: f32[b, 8]) -> (%y: f32[b, 8]) where b in [1, 64] {
  %e = exp(%x) : f32[b, 8] // one
  %n = neg(%e) : f32[b, 8] // two
  %y = abs(%n) : f32[b, 8] // three
})",
         {{{"b", 3}}}, "one", "two");
}

TEST(Constraints, OperatorsFarApartStayApart) {
  Graph g = parsed(R"(graph @main(%x: f32[b, 8]) -> (%y: f32[b, 8]) where b in [1, 64] {
  %e = exp(%x) : f32[b, 8] // one
  %n = neg(%e) : f32[b, 8] // two
  %y = abs(%n) : f32[b, 8] // three
})");
  const auto plan = check_plan(g, {{{"b", 3}}}, apart("one", "three"));
  EXPECT_FALSE(together(g, plan, "one", "three"));
  EXPECT_EQ(plan.groups.size(), 2u); // what lies between is in either
}

TEST(Constraints, AProducerIsNotComputedWithinAReduction) {
  splits(R"(graph @main(%x: f32[b, 8]) -> (%y: f32[b, 1]) where b in [1, 64] {
  %e = exp(%x) : f32[b, 8] // one
  %y = reduce_sum(%e) axes=[1] keepdims=1 : f32[b, 1] // two
})",
         {{{"b", 3}}}, "one", "two");
}

TEST(Constraints, AReductionIsNotFollowedByItsRows) {
  splits(R"(graph @main(%x: f32[b, 8]) -> (%y: f32[b, 8]) where b in [1, 64] {
  %m = reduce_max(%x) axes=[1] keepdims=1 : f32[b, 1] // one
  %y = sub(%x, %m) : f32[b, 8] // two
})",
         {{{"b", 3}}}, "one", "two");
}

TEST(Constraints, ABroadcastIsStored) { // the two iteration spaces differ: by request it is, not for that
  splits(R"(graph @main(%x: f32[8], %u: f32[b, 8]) -> (%y: f32[b, 8]) where b in [1, 64] {
  %e = neg(%x) : f32[8] // one
  %y = add(%u, %e) : f32[b, 8] // two
})",
         {{{"b", 3}}}, "one", "two");
}

TEST(Constraints, AViewIsCopied) {
  splits(R"(graph @main(%x: f32[b, 8]) -> (%y: f32[8, b]) where b in [1, 64] {
  %t = transpose(%x) perm=[1, 0] : f32[8, b] // one
  %y = exp(%t) : f32[8, b] // two
})",
         {{{"b", 3}}}, "one", "two");
}

const std::string kProduct = R"(graph @main(%x: f32[b, 8], %w: f32[6, 8]) -> (%y: f32[b, 6]) where b in [1, 64] {
  %t = transpose(%w) perm=[1, 0] : f32[8, 6] // view
  %m = matmul(%x, %t) : f32[b, 6] // product
  %y = tanh(%m) : f32[b, 6] // activation
})";

TEST(Constraints, AnEpilogueIsNotAttached) {
  splits(kProduct, {{{"b", 3}}}, "product", "activation");
  splits(kProduct, {{{"b", 3}}}, "view", "product");
}

TEST(Constraints, SiblingsAndSmallKernelsStayApart) {
  const std::string siblings = R"(graph @main(%x: f32[b, 8]) -> (%y: f32[b, 8], %z: f32[b, 8]) where b in [1, 64] {
  %y = exp(%x) : f32[b, 8] // one
  %z = neg(%x) : f32[b, 8] // two
})";
  Graph g = parsed(siblings);
  EXPECT_TRUE(together(g, check_plan(g, {{{"b", 3}}}), "one", "two"));
  g = parsed(siblings);
  EXPECT_FALSE(together(g, check_plan(g, {{{"b", 3}}}, apart("one", "two")), "one", "two"));

  const std::string small = R"(graph @main(%x: f32[8], %u: f32[8]) -> (%y: f32[8], %z: f32[8]) {
  %y = exp(%x) : f32[8] // one
  %z = neg(%u) : f32[8] // two
})";
  FusionOptions options = generated();
  options.launch_us = 2;
  options.bytes_per_us = 4e6;
  g = parsed(small);
  EXPECT_TRUE(together(g, check_plan(g, {{}}, options), "one", "two"));
  g = parsed(small);
  const auto plan = check_plan(g, {{}}, apart("one", "two", options));
  EXPECT_FALSE(together(g, plan, "one", "two"));
  ASSERT_EQ(plan.pairs.size(), 1u);
  EXPECT_EQ(plan.pairs[0].reason, FusionReason::KeptApart);
}

TEST(Constraints, WhatWouldNotFuseKeepsItsReason) {
  Graph g = parsed(R"(graph @main(%x: f32[b, 8]) -> (%y: f32[b, 1]) where b in [1, 64] {
  %m = reduce_sum(%x) axes=[0] keepdims=1 : f32[1, 8] // one
  %s = sub(%x, %m) : f32[b, 8] // two
  %y = reduce_max(%s) axes=[1] keepdims=1 : f32[b, 1] // three
})");
  const auto plan = check_plan(g, {{{"b", 3}}}, apart("one", "three"));
  EXPECT_NE(edge(g, plan, "one", "two").reason, FusionReason::KeptApart) << print(g, plan);
}

// ---- pins

TEST(Pins, APlanWithARequestIsRepeatedWithoutIt) {
  Graph g = parsed(kProduct);
  const auto saved = check_plan(g, {{{"b", 3}}}, apart("product", "activation"));
  FusionOptions options = generated();
  options.constraints.groups = pinned(g, saved);
  Graph again = parsed(kProduct);
  const auto plan = check_plan(again, {{{"b", 3}}}, options);
  EXPECT_TRUE(plan.unmet.empty());
  EXPECT_EQ(groups_text(again, plan), groups_text(g, saved));
  EXPECT_EQ(edge(again, plan, "product", "activation").reason, FusionReason::KeptApart);
}

TEST(Pins, HoldWhereTheyDoNotPay) { // a kernel of two, of which other figures would make two kernels
  const std::string text = R"(graph @main(%x: f32[8], %u: f32[8]) -> (%y: f32[8], %z: f32[8]) {
  %y = exp(%x) : f32[8] // one
  %z = neg(%u) : f32[8] // two
})";
  FusionOptions small = generated();
  small.launch_us = 2;
  small.bytes_per_us = 4e6;
  Graph g = parsed(text);
  const auto saved = check_plan(g, {{}}, small);
  ASSERT_TRUE(together(g, saved, "one", "two"));
  FusionOptions options = generated();
  options.constraints.groups = pinned(g, saved);
  Graph again = parsed(text);
  const auto plan = check_plan(again, {{}}, options);
  EXPECT_TRUE(plan.unmet.empty());
  EXPECT_EQ(groups_text(again, plan), groups_text(g, saved));
}

TEST(Pins, WhatDoesNotFitIsNamedAndPlannedAnew) {
  const std::string text =
      R"(graph @main(%x: f32[b, 8], %u: f32[b, 8]) -> (%y: f32[b, 8], %z: f32[8, b]) where b in [1, 64] {
  %e = exp(%x) : f32[b, 8] // one
  %y = neg(%e) : f32[b, 8] // two
  %t = transpose(%u) perm=[1, 0] : f32[8, b] // three
  %z = abs(%t) : f32[8, b] // four
})";
  Graph g = parsed(text);
  FusionOptions options = generated();
  options.constraints.groups = pinned(g, check_plan(g, {{{"b", 3}}}));
  ASSERT_EQ(options.constraints.groups.size(), 2u);
  options.constraints.groups[0].nodes.push_back("five/abs"); // of another version of the model
  Graph again = parsed(text);
  auto plan = check_plan(again, {{{"b", 3}}}, options);
  ASSERT_EQ(plan.unmet.size(), 1u);
  EXPECT_EQ(plan.unmet[0].group, 0);
  EXPECT_NE(plan.unmet[0].why.find("five/abs"), std::string::npos);
  EXPECT_TRUE(together(again, plan, "one", "two"));
  EXPECT_EQ(plan.groups.size(), 2u);

  // Groups that no kernel can be.
  options.constraints.groups = pinned(g, check_plan(g, {{{"b", 3}}}));
  auto& groups = options.constraints.groups;
  for (auto list : {&PinnedGroup::nodes, &PinnedGroup::stages, &PinnedGroup::reads})
    for (auto& item : groups[1].*list) (groups[0].*list).push_back(item);
  groups.pop_back();
  Graph third = parsed(text);
  plan = check_plan(third, {{{"b", 3}}}, options);
  ASSERT_EQ(plan.unmet.size(), 1u);
  EXPECT_EQ(plan.groups.size(), 2u);
}

} // namespace
} // namespace tessera
