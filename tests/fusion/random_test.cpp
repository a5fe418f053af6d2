// Plans of random small graphs compute what the reference computes.
#include "tests/base/seeds.h"
#include "tests/fusion/harness.h"
#include "tests/fusion/random_graph.h"

namespace tessera {
namespace {

using Sizes = std::vector<std::map<std::string, int64_t>>;

TEST(RandomPlan, ComputesWhatTheReferenceComputes) {
  for (uint32_t seed = 0; seed < test::seeds(250); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Graph g = RandomGraph(seed).make(6 + static_cast<int>(seed % 25));
    check_plan(g, {{{"b", 2}, {"s", 3}}, {{"b", 1}, {"s", 1}}}, generated(), 2e-4);
    if (HasFailure()) return;
  }
}

TEST(RandomPlan, LimitsAndOptionsKeepTheMeaning) {
  for (uint32_t seed = 1000; seed < 1000 + test::seeds(60); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (int variant = 0; variant < 6; ++variant) {
      Graph g = RandomGraph(seed).make(20);
      FusionOptions options = generated();
      if (variant == 0) options.max_buffers = 3;
      if (variant == 1) options.generated_epilogues = false;
      if (variant == 2) options.enabled = false;
      if (variant >= 3) { // libraries of a GPU, products as loops, or some of each
        options.generated_epilogues = false;
        options.fixed_epilogues = options.scaled_operands = true;
        if (variant == 4) options.as_loops = [](const Graph&, NodeId) { return true; };
        if (variant == 5) options.as_loops = [](const Graph&, NodeId id) { return id.index % 2 == 0; };
      }
      check_plan(g, {{{"b", 3}, {"s", 2}}}, options, 2e-4);
      if (HasFailure()) return;
    }
  }
}

// Operators stay apart and breaks are breaks, whatever else is fused, and a pinned plan is repeated.
TEST(RandomPlan, RequestsHoldAndPinnedPlansAreRepeated) {
  const Sizes sizes = {{{"b", 2}, {"s", 3}}};
  uint32_t pinned_groups = 0;
  for (uint32_t seed = 2000; seed < 2000 + test::seeds(120); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto make = [&] {
      Graph g = RandomGraph(seed).make(6 + static_cast<int>(seed % 25));
      for (NodeId id : g.order()) g.node(id).location.node = "n" + std::to_string(id.index);
      return g;
    };
    Graph g = make();
    std::mt19937 random(seed);
    const auto order = g.order();
    auto any = [&] { return g.node(order[random() % order.size()]).location.node; };
    FusionOptions options = generated();
    if (seed % 3 == 1) options.launch_us = 2, options.bytes_per_us = 4e6;
    if (seed % 3 == 2) options.generated_epilogues = false, options.fixed_epilogues = options.scaled_operands = true;
    FusionOptions requested = options;
    for (int i = 0; i < 4; ++i)
      if (const std::string a = any(), b = any(); a != b) requested.constraints.apart.emplace_back(a, b);
    if (seed % 2 == 0) requested.constraints.breaks.push_back(any());
    const FusionPlan plan = check_plan(g, sizes, requested, 2e-4);
    for (const auto& [a, b] : requested.constraints.apart) EXPECT_FALSE(together(g, plan, a, b)) << a << " " << b;
    for (const auto& e : plan.ledger)
      for (const std::string& name : requested.constraints.breaks)
        EXPECT_FALSE(is_of(g.node(e.producer).location, name) &&
                     together(g, plan, name, g.node(e.consumer).location.node))
            << name << "\n"
            << print(g, plan);

    Graph again = make();
    options.constraints = requested.constraints; // a plan file has them, too
    options.constraints.groups = pinned(g, plan);
    pinned_groups += static_cast<uint32_t>(options.constraints.groups.size());
    const FusionPlan repeated = check_plan(again, sizes, options, 2e-4);
    for (const auto& u : repeated.unmet)
      ADD_FAILURE() << options.constraints.groups[static_cast<size_t>(u.group)].name << ": " << u.why;
    EXPECT_EQ(groups_text(again, repeated), groups_text(g, plan));
    if (HasFailure()) return;
  }
  EXPECT_GT(pinned_groups, test::seeds(120));
}

} // namespace
} // namespace tessera
