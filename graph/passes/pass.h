// Passes over the Graph IR are rows of one table (passes.cpp): name, summary, function, and the pipelines they stand
// in. All bookkeeping (verifying, timing, dumping, disabling, naming the pass in errors) is in the runner, none in
// passes.
#pragma once
#include "graph/ir/graph.h"
#include <functional>
#include <map>

namespace tessera {

struct PassOptions {
  std::map<std::string, std::string> values; // "fold.limit" -> "1048576"; each pass documents its own
};
struct PassStats {
  std::string name;
  bool changed = false;
  double milliseconds = 0;
  int nodes_before = 0, nodes_after = 0;
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

struct PipelineOptions {
  std::vector<std::string> passes;   // names, in order; empty = default_pipeline()
  std::vector<std::string> disabled; // besides TESSERA_DISABLE_PASSES
  bool verify = false;               // after every changing pass; always on in debug builds
  PassOptions options;
};
[[nodiscard]] const std::vector<std::string>& default_pipeline();
// Runs passes. Errors are prefixed with "failed in pass <name>". In debug builds a pass that changed the graph and said
// it did not is caught by comparing hashes of the text form.
[[nodiscard]] Result<std::vector<PassStats>> run_pipeline(Graph& graph, const PipelineOptions& options);

} // namespace tessera
