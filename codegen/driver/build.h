// Builds an Executable's buffers and steps from the fusion plan and its compiled kernels.
#pragma once
#include "codegen/compilation/backend.h"

namespace tessera {

// The loop nest of a library call's epilogue over a box of the result's index space: axis d runs over [0, count[d]) and
// stands for index begin[d] + axis. The symbols are created in the graph's environment.
struct BoxedNest {
  LoopNest nest;
  std::vector<SymExpr> begin, count;
};
[[nodiscard]] BoxedNest box_epilogue(Graph& graph, const LoopNest& nest);
// The same for a device that runs the epilogue once, after the whole call: without begin and count.
[[nodiscard]] BoxedNest whole_epilogue(Graph& graph, const LoopNest& nest);

struct BuildInput {
  std::shared_ptr<Graph> graph;
  const FusionPlan& plan;
  DeviceCode code;
  std::vector<int> kernel_of_group;      // by index in flat_groups(plan): kernel of code, or -1
  std::vector<BoxedNest> epilogue_nests; // by group: epilogue of a library call (otherwise an empty nest)
  std::string target;
  const std::map<size_t, std::shared_ptr<const ControlCode>>& bodies; // by group
  std::map<size_t, Diagnostic>* failed = nullptr;                     // takes the groups that could not become steps
};
// Builds the executable of a plan. Where a group fails and input.failed is given, the others are tried, too, and the
// result is not to be used.
[[nodiscard]] Result<std::shared_ptr<Executable>> build_executable(const BuildInput& input);

} // namespace tessera
