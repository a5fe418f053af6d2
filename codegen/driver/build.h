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

// A group of a plan and what was generated for it.
struct GroupCode {
  const Group* group;
  const GeneratedKernel* kernel = nullptr; // its own, or that of its library call's epilogue
  const BoxedNest* epilogue = nullptr;     // which `kernel` computes
  const ControlCode* control = nullptr;    // of an If or a loop
};
struct BuildInput {
  std::shared_ptr<Graph> graph;
  std::vector<GroupCode> groups; // of the plan, in the order of flat_groups()
  const DeviceCode& code;
  std::string target;
  std::map<size_t, Diagnostic>* failed = nullptr; // takes the indices of groups that could not become steps
};
// Builds the executable of a plan. Where a group fails and input.failed is given, the others are tried, too, and the
// result is not to be used.
[[nodiscard]] Result<std::shared_ptr<Executable>> build_executable(const BuildInput& input);

} // namespace tessera
