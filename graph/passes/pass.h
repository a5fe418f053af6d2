// Passes over the Graph IR are rows of one table (pass.cpp): name, summary, function. The runner (runner.h) does all
// bookkeeping, passes none. Passes that depend on a device, and those over plans, stand in codegen/driver/pipeline.h.
#pragma once
#include "graph/ir/graph.h"
#include "graph/passes/runner.h"
#include <functional>
#include <map>

namespace tessera {

struct PassOptions {
  std::map<std::string, std::string> values; // "fold.limit" -> "1048576"; each pass documents its own
};

// Returns whether it changed the graph.
using PassFn = std::function<Result<bool>(Graph&, const PassOptions&)>;
struct PassDef {
  std::string_view name; // "cse", what `tessera opt --passes` and TESSERA_DISABLE_PASSES name
  std::string_view summary;
  PassFn run;
};
[[nodiscard]] const std::vector<PassDef>& graph_passes(); // in the default pipeline's order, each once
[[nodiscard]] const PassDef* find_graph_pass(std::string_view name);

// A graph as what the runner transforms.
class GraphSubject : public PassSubject {
public:
  explicit GraphSubject(Graph& graph) : graph_(graph) {}
  [[nodiscard]] std::string_view level() const override { return "graph"; }
  [[nodiscard]] std::string name() const override { return graph_.name(); }
  [[nodiscard]] std::string text() const override;
  [[nodiscard]] Status verify() const override;
  [[nodiscard]] int size() const override;

protected:
  Graph& graph_;
};

struct PipelineOptions {
  std::vector<std::string> passes; // names, in order; empty = default_pipeline()
  PassRunOptions run;              // disabled: names of graph passes; TESSERA_DISABLE_PASSES counts as well
  PassOptions options;
};
[[nodiscard]] const std::vector<std::string>& default_pipeline();
// Runs passes. Errors: Usage for a name in `passes` or `disabled` that is no graph pass; those of run_steps().
[[nodiscard]] Result<std::vector<PassStats>> run_pipeline(Graph& graph, const PipelineOptions& options);

} // namespace tessera
