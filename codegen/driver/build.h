// From the fusion plan and its compiled kernels to the buffers and steps of an Executable.
#pragma once
#include "codegen/device/backend.h"

namespace tessera {

// The nest of a library call's epilogue over a box of the result's index space: axis d runs over [0, count[d]) and
// stands for begin[d] + axis. The symbols are created in the graph's environment.
struct BoxedNest {
  LoopNest nest;
  std::vector<SymExpr> begin, count;
};
[[nodiscard]] BoxedNest box_epilogue(Graph& graph, const LoopNest& nest);
// The same for a device that runs it once, behind the whole call: it does not speak of a box's begin and count.
[[nodiscard]] BoxedNest whole_epilogue(Graph& graph, const LoopNest& nest);

struct BuildInput {
  std::shared_ptr<Graph> graph;
  const FusionPlan& plan;
  DeviceCode code;
  std::vector<int> kernel_of_group; // by position in flat_groups(plan): kernel of code, -1
  std::vector<BoxedNest> boxes;     // likewise, of library groups with an epilogue (empty nest otherwise)
  std::string target;
};
[[nodiscard]] Result<std::shared_ptr<Executable>> build_executable(const BuildInput& input);

} // namespace tessera
