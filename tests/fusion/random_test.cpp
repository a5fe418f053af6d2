// Plans of random small graphs compute what the reference computes.
#include "tests/fusion/harness.h"
#include "tests/fusion/random_graph.h"

namespace tessera {
namespace {

TEST(RandomPlan, ComputesWhatTheReferenceComputes) {
  for (uint32_t seed = 0; seed < 250; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Graph g = RandomGraph(seed).make(6 + static_cast<int>(seed % 25));
    check_plan(g, {{{"b", 2}, {"s", 3}}, {{"b", 1}, {"s", 1}}}, generated(), 2e-4);
    if (HasFailure()) return;
  }
}

TEST(RandomPlan, LimitsAndOptionsKeepTheMeaning) {
  for (uint32_t seed = 1000; seed < 1060; ++seed) {
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

} // namespace
} // namespace tessera
