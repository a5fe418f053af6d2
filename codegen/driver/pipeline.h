// The pipeline of a compile, from an imported graph to the plan that code is generated from: one list of passes, which
// `compile`, `explain` and `opt` share.
//
//   graph passes       graph/passes: composites to primitives, constants folded, algebra, common subexpressions
//   group-iterations   bodies of scans become several iterations
//   the device's       requirements of its libraries and kernels: dtypes, layouts, joined products
//   separate-fills     operators that change a fill in place get one of their own
//   fuse               makes the fusion plan; where planning fails, one without fusion
//   fuse-attention     two products and the softmax between them become one unit of the plan
//   fold-constants     computes values that depend on no input; if the graph changes, it is planned again
//   pin-plan           with a plan file: plans the graph, which is final now, once more as the file says
//   the device's       choices of how to compute a group of the plan
//   shorten-lifetimes  orders the groups so that values in memory live shortly
#pragma once
#include "codegen/device/backend.h"
#include "codegen/driver/compile.h"
#include "fusion/axes.h"
#include "graph/passes/pass.h"
#include <utility>

namespace tessera {

// What passes transform: the graph and, after the pass `fuse`, its plan.
class Compilation final : public GraphSubject {
public:
  Compilation(Graph& graph, Backend& backend, const CompileOptions& options);
  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] Backend& backend() { return backend_; }
  [[nodiscard]] const CompileOptions& options() const { return options_; }
  [[nodiscard]] FoldedConstants& constants() { return constants_; }
  [[nodiscard]] bool has_plan() const { return plan_.has_value(); }
  [[nodiscard]] FusionPlan& plan(); // requires that there is one
  // Inputs of the plan.
  [[nodiscard]] const FusionOptions& fusion() const { return fusion_; }
  // What the next plan goes around; the plan that there is, is given up.
  void plan_around(const FusionDetours& detours);
  // What failed while planning, since the last call.
  [[nodiscard]] std::vector<PlanFailure> take_failures() { return std::exchange(failures_, {}); }

  // The passes of every device.
  [[nodiscard]] Result<bool> fuse();
  [[nodiscard]] Result<bool> fuse_attention();
  [[nodiscard]] Result<bool> fold();
  [[nodiscard]] Result<bool> pin();

  [[nodiscard]] std::string_view level() const override { return has_plan() ? "plan" : "graph"; }
  [[nodiscard]] std::string text() const override; // of the graph, then of the plan if there is one
  [[nodiscard]] Status verify() const override;
  [[nodiscard]] int size() const override;

private:
  [[nodiscard]] Result<FusionPlan> plan_or_less();
  Backend& backend_;
  const CompileOptions& options_;
  FusionDetours detours_;
  std::vector<PlanFailure> failures_;
  fusion::AxisPool axes_;
  FusionOptions fusion_;
  std::optional<FusionPlan> plan_;
  FoldedConstants constants_;
  bool pinned_ = false; // the plan follows options.plan
};

enum class PassLevel : uint8_t { Graph, Fuse /* makes a plan of a graph */, Plan };
struct CompilePass {
  std::string_view name, summary;
  PassLevel level = PassLevel::Graph;
  std::function<Result<bool>(Compilation&)> run;
  std::string_view again_from = {}; // the pass from which the pipeline repeats if this one changed something
  std::string_view device = {};     // the device that has this pass; empty: all
};
// All passes of all devices, each once, in pipeline order.
[[nodiscard]] const std::vector<CompilePass>& compile_passes();
[[nodiscard]] const CompilePass* find_compile_pass(std::string_view name);
// The passes of a compilation for this device, in order. Error Usage for an unknown device.
[[nodiscard]] Result<std::vector<std::string>> compile_pipeline(std::string_view device);
// Ends a pipeline after the pass `text`, at its first occurrence, or with "NAME,2" at its second. Error Usage if it has
// no such pass.
[[nodiscard]] Status stop_after(std::vector<std::string>& pipeline, const std::string& text);
// Runs passes by name. TESSERA_DISABLE_PASSES applies in addition to run.disabled. Errors: Usage for unknown names and
// for passes of another device or level; those of run_steps().
[[nodiscard]] Result<std::vector<PassStats>> run_passes(Compilation& compilation,
                                                        const std::vector<std::string>& pipeline, PassRunOptions run);

} // namespace tessera
