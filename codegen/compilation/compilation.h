// The compile that passes work on: the graph and, behind the pass `fuse`, its plan.
#pragma once
#include "codegen/compilation/backend.h"
#include "fusion/axes.h"
#include "graph/passes/pass.h"
#include <map>
#include <utility>

namespace tessera {

// The subject of passes: the graph and, after the pass `fuse`, its plan.
class Compilation final : public GraphSubject {
public:
  Compilation(Graph& graph, Backend& backend, const CompileOptions& options);
  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] Backend& backend() { return backend_; }
  [[nodiscard]] const CompileOptions& options() const { return options_; }
  [[nodiscard]] FoldedConstants& constants() { return planning_.constants; }
  [[nodiscard]] bool has_plan() const { return planning_.plan.has_value(); }
  [[nodiscard]] FusionPlan& plan(); // requires that there is one
  // Inputs of the plan.
  [[nodiscard]] const FusionOptions& fusion() const { return planning_.fusion; }
  // Sets the detours of the next plan; the present plan is given up, and so are contractions.
  void plan_around(const FusionDetours& detours);
  // The failures while planning, since the last call.
  [[nodiscard]] std::vector<PlanFailure> take_failures() { return std::exchange(planning_.failures, {}); }

  // A product that a generated contraction may compute.
  struct Contraction {
    ContractionChoice choice;
    std::vector<NodeId> nodes; // what the call, the kernel behind it and the one in front of it compute
    // The factor that the kernel in front of the call makes for it alone; the contraction computes it. Invalid: none.
    ValueId factor;
    // The same without the kernel in front, where another one stands behind: tried next.
    double library_us_behind = 0;
    std::vector<NodeId> nodes_behind; // empty: not tried
  };
  // The next step of choosing them (codegen/device/cuda/contract_products.h): plans are made in between.
  enum class Contracting : uint8_t { List, Check, Done };

  // The state that the passes between graph and plan change (codegen/driver/pipeline.cpp).
  struct Planning {
    explicit Planning(ShapeEnv& env) : axes(env) {}
    FusionDetours detours;
    std::vector<PlanFailure> failures;
    fusion::AxisPool axes;
    FusionOptions fusion;
    std::optional<FusionPlan> plan;
    FoldedConstants constants;
    bool pinned = false;                        // the plan follows options.plan
    std::map<NodeId, Contraction> contractions; // by product
    std::map<NodeId, std::string> uncompared;   // by product: why none is listed
    Contracting contracting = Contracting::List;
  };
  [[nodiscard]] Planning& planning() { return planning_; }

  [[nodiscard]] std::string_view level() const override { return has_plan() ? "plan" : "graph"; }
  [[nodiscard]] std::string text() const override; // of the graph, then of the plan if there is one
  [[nodiscard]] Status verify() const override;
  [[nodiscard]] int size() const override;

private:
  Backend& backend_;
  const CompileOptions& options_;
  Planning planning_;
};

enum class PassLevel : uint8_t { Graph, Fuse /* makes a plan of a graph */, Plan };
struct CompilePass {
  std::string_view name, summary;
  PassLevel level = PassLevel::Graph;
  std::function<Result<bool>(Compilation&)> run;
  std::string_view again_from = {}; // the pass from which the pipeline repeats if this one changed something
  std::string_view device = {};     // the device that has this pass; empty: all
};

} // namespace tessera
