// The schedules that a nest gets on a GPU, and their kernels. Private to the folder.
#pragma once
#include "codegen/schedule/legal.h"

namespace tessera {

struct BlockChoice {
  Legal legal;
  std::string why; // for the report
  PredictedTime predicted;
  std::string measured; // of a record
  std::vector<ExtentRange> extents;
};

// In order of preference, those of `tuned` first; the last one has no conditions.
[[nodiscard]] std::vector<BlockChoice> choose_blocks(const BlockFacts& facts, const LoweringOptions& options = {},
                                                     const TunedSchedules* tuned = nullptr);

// The kernel of one schedule. Error CodegenError when the tile does not fit the axes.
[[nodiscard]] Result<ScheduledKernel> lower_block(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                                  const Legal& legal, const std::string& name,
                                                  const LoweringOptions& options = {});

} // namespace tessera
