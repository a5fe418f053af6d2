// Shared by the tests of fusion: running plans group by group, and comparing with the reference evaluator.
#pragma once
#include "fusion/cost.h"
#include "fusion/plan.h"
#include "graph/reference/evaluator.h"
#include <gtest/gtest.h>

namespace tessera {

using Symbols = std::unordered_map<uint64_t, int64_t>;
using Inputs = std::map<std::string, Tensor>;

Graph parsed(const std::string& text);
// Deterministic contents; floats in [-2, 2], integers in [0, int_limit).
Tensor filled(DType dtype, Dims dims, uint64_t seed, int64_t int_limit = 2);
// Inputs of a graph whose symbols take the given sizes by name.
Inputs inputs_for(const Graph& graph, const std::map<std::string, int64_t>& sizes, uint64_t seed,
                  int64_t int_limit = 2);
// How run_plan() runs what code is generated for; empty functions: by the nest's interpreter and the node's reference.
// (tests/gpu sets these to kernels on the emulator.)
struct PlanRunner {
  std::function<Result<std::vector<Tensor>>(const Graph&, const LoopNest&, const std::vector<Tensor>& loads,
                                            const Symbols&)>
      nest; // results: of its stores, in order
  std::function<Result<std::vector<Tensor>>(const Graph&, const Node&, const std::vector<Tensor>& operands,
                                            const Symbols&)>
      own; // a node with a separate kernel
  // An attention by a kernel; nothing where there is none for it. `tensors`: of what it reads.
  std::function<Result<std::optional<Tensor>>(const Graph&, const AttentionCall&,
                                              const std::map<ValueId, Tensor>& tensors, const Symbols&)>
      attention;
};
PlanRunner& plan_runner();
// Runs the groups in order: nests by their interpreter, library calls by plain loops over their strided operands.
Result<std::vector<Tensor>> run_plan(const Graph& graph, const FusionPlan& plan, const Inputs& inputs);

// Options of a device that generates epilogues for every call.
FusionOptions generated();
// Plans, verifies the plan and its nests, checks the ledger for completeness, and runs it against the reference at each
// of the sizes. Returns the plan.
FusionPlan check_plan(Graph& graph, const std::vector<std::map<std::string, int64_t>>& sizes,
                      const FusionOptions& options = generated(), double tolerance = 1e-5);

// Whether a group has nodes of both operators.
bool together(const Graph& graph, const FusionPlan& plan, const std::string& a, const std::string& b);
// The plan as a plan file pins it.
std::vector<PinnedGroup> pinned(const Graph& graph, const FusionPlan& plan);
std::string groups_text(const Graph& graph, FusionPlan plan); // without reasons

int count(const FusionPlan& plan, Group::Kind kind);
int count_reason(const FusionPlan& plan, FusionReason reason);

} // namespace tessera
