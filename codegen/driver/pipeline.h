// The pipeline of a compile, from an imported graph to the plan that code is generated from: one list of passes, which
// `compile`, `explain` and `opt` share.
//
//   graph passes       graph/passes: composites to primitives, constants folded, algebra, common subexpressions
//   the device's       what its libraries and kernels ask of a graph: dtypes, layouts, joined products
//   fuse               the graph gets a plan
//   fuse-attention     two products and the softmax between them become one unit of the plan
//   fold-constants     computes what depends on no input; the graph has changed then, and is planned again
//   the device's       choices among ways of computing a group of the plan
#pragma once
#include "codegen/device/backend.h"
#include "codegen/driver/compile.h"
#include "fusion/axes.h"
#include "graph/passes/pass.h"

namespace tessera {

// What passes transform: the graph, and behind the pass `fuse` the plan made from it.
class Compilation final : public GraphSubject {
public:
  Compilation(Graph& graph, Backend& backend, const CompileOptions& options);
  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] Backend& backend() { return backend_; }
  [[nodiscard]] const CompileOptions& options() const { return options_; }
  [[nodiscard]] FoldedConstants& constants() { return constants_; }
  [[nodiscard]] bool has_plan() const { return plan_.has_value(); }
  [[nodiscard]] FusionPlan& plan(); // where there is one
  // What the plan was made with.
  [[nodiscard]] const FusionOptions& fusion() const { return fusion_; }

  // The passes that every device has.
  [[nodiscard]] Result<bool> fuse();
  [[nodiscard]] Result<bool> fuse_attention();
  [[nodiscard]] Result<bool> fold();

  [[nodiscard]] std::string_view level() const override { return has_plan() ? "plan" : "graph"; }
  [[nodiscard]] std::string text() const override; // of the graph, then of the plan where there is one
  [[nodiscard]] Status verify() const override;
  [[nodiscard]] int size() const override;

private:
  Backend& backend_;
  const CompileOptions& options_;
  fusion::AxisPool axes_;
  FusionOptions fusion_;
  std::optional<FusionPlan> plan_;
  FoldedConstants constants_;
};

enum class PassLevel : uint8_t { Graph, Fuse /* makes a plan of a graph */, Plan };
struct CompilePass {
  std::string_view name, summary;
  PassLevel level = PassLevel::Graph;
  std::function<Result<bool>(Compilation&)> run;
  std::string_view again_from = {}; // the pass with which the pipeline goes on where this one changed something
  std::string_view device = {};     // that it belongs to; empty: all
};
// Every pass of every device, once, in the order in which pipelines have them.
[[nodiscard]] const std::vector<CompilePass>& compile_passes();
[[nodiscard]] const CompilePass* find_compile_pass(std::string_view name);
// The passes of a compile for this device, in order. Error Usage for a device that there is none of.
[[nodiscard]] Result<std::vector<std::string>> compile_pipeline(std::string_view device);
// Cuts a pipeline off behind the pass that `text` names, at its first occurrence or with "NAME,2" at its second.
// Error Usage where that is not in it.
[[nodiscard]] Status stop_after(std::vector<std::string>& pipeline, const std::string& text);
// Runs passes by name. TESSERA_DISABLE_PASSES counts besides run.disabled. Errors: Usage for names that no pass has,
// and for a pass of another device or level; those of run_steps().
[[nodiscard]] Result<std::vector<PassStats>> run_passes(Compilation& compilation,
                                                        const std::vector<std::string>& pipeline, PassRunOptions run);

} // namespace tessera
