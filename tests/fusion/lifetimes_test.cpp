// The order of groups in which values in memory live shortly. Every plan of these tests' harness is run in that order.
#include "fusion/lifetimes.h"
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

// The values that the groups write, in order.
std::vector<std::string> order_of(const Graph& graph, const FusionPlan& plan) {
  std::vector<std::string> names;
  for (const Group& g : plan.groups) names.push_back(graph.value(g.writes[0]).name);
  return names;
}

std::vector<std::string> reordered(const std::string& text) {
  Graph graph = parsed(text);
  FusionOptions options = generated();
  options.generated_epilogues = false;
  FusionPlan plan = check_plan(graph, {{}}, options);
  fusion::shorten_lifetimes(graph, plan);
  return order_of(graph, plan);
}

// A backward pass: a and b are what the forward pass did not save, computed anew from its inputs.
TEST(Lifetimes, WhatIsComputedAnewIsComputedWhenItIsNeeded) {
  const std::vector<std::string> wanted = {"g1", "b", "w1", "g2", "a", "w2"};
  EXPECT_EQ(
      reordered(
          R"(graph @main(%x: f32[8, 8], %u: f32[8, 8], %g: f32[8, 8], %p: f32[8, 8]) -> (%w1: f32[8, 8], %w2: f32[8, 8]) {
  %a = exp(%x) : f32[8, 8]
  %b = sin(%u) : f32[8, 8]
  %g1 = matmul(%g, %p) : f32[8, 8]
  %w1 = matmul(%b, %g1) : f32[8, 8]
  %g2 = matmul(%g1, %p) : f32[8, 8]
  %w2 = matmul(%a, %g2) : f32[8, 8]
})"),
      wanted);
}

// The sum is small and the last one to read a: it does not wait for its own reader.
TEST(Lifetimes, ASmallResultOfALargeValueIsMadeEarly) {
  const std::vector<std::string> wanted = {"m", "a", "s", "c", "d", "e"};
  EXPECT_EQ(reordered(R"(graph @main(%x: f32[8, 8], %p: f32[8, 8]) -> (%e: f32[1, 8]) {
  %m = matmul(%x, %x) : f32[8, 8]
  %a = matmul(%m, %p) : f32[8, 8]
  %c = matmul(%x, %x) : f32[8, 8]
  %d = matmul(%c, %p) : f32[8, 8]
  %s = reduce_sum(%a) axes=[0] keepdims=1 : f32[1, 8]
  %e = matmul(%s, %d) : f32[1, 8]
})"),
            wanted);
}

// A group that reads inputs alone is moved to its reader, but not behind a host operator.
TEST(Lifetimes, NothingCrossesTheHost) {
  Graph graph = parsed(R"(graph @main(%x: f32[8, 8], %u: f32[8]) -> (%y: f32[8, 8], %k: f32[8]) {
  %a = matmul(%x, %x) : f32[8, 8]
  %k = sin(%u) : f32[8]
  %b = matmul(%x, %x) : f32[8, 8]
  %c = matmul(%b, %x) : f32[8, 8]
  %y = matmul(%a, %c) : f32[8, 8]
})");
  FusionOptions options = generated();
  FusionPlan plan = check_plan(graph, {{}}, options);
  fusion::shorten_lifetimes(graph, plan);
  EXPECT_EQ(order_of(graph, plan), (std::vector<std::string>{"k", "b", "c", "a", "y"}));
  options.device_supports = [](const Graph& g, NodeId id, std::string*) { return g.node(id).op->name != "sin"; };
  plan = check_plan(graph, {{}}, options);
  fusion::shorten_lifetimes(graph, plan);
  EXPECT_EQ(order_of(graph, plan), (std::vector<std::string>{"a", "k", "b", "c", "y"}));
}

} // namespace
} // namespace tessera
