// The table of graph passes and the default pipeline.
#include "graph/passes/pass.h"
#include "graph/passes/passes.h"

namespace tessera {

const std::vector<PassDef>& graph_passes() {
  static const std::vector<PassDef> table = {
      {"simplify-shapes", "states every size by what is known of its symbols", passes::simplify_shapes},
      {"decompose", "replaces composite operators by primitives", passes::decompose},
      {"narrow", "elements of 8-bit floats and of less than 8 bits become codes in bytes", passes::narrow},
      {"fold-shapes", "replaces integer values that are known when compiling by constants or sizes",
       passes::fold_shapes},
      {"fold", "computes small nodes of constant operands (fold.limit: bytes)", passes::fold},
      {"simplify", "algebra that keeps IEEE results; views of views, casts of casts", passes::simplify},
      {"cse", "merges nodes that compute the same", passes::cse},
      {"channels-last", "convolutions and poolings take and yield [N, spatial..., C]", passes::channels_last},
      {"sink-transposes", "moves transposes behind pointwise operators where they cancel with others",
       passes::sink_transposes},
      {"sink-views", "does pointwise operators of one tensor before its views", passes::sink_views},
      {"share-reductions", "reductions over more axes start from those over fewer", passes::share_reductions},
      {"dce", "removes what no output depends on, renumbers", passes::dce},
  };
  return table;
}

const std::vector<std::string>& default_pipeline() {
  static const std::vector<std::string> names = {
      "simplify-shapes", // what the importer's guards taught
      "decompose",       // only primitives from here on
      "narrow",          // only elements that generated code has
      "fold-shapes",
      "dce", // shape arithmetic disappears early, the rest has less to look at
      "fold",
      "simplify",
      "cse", // each makes work for the next
      "channels-last",
      "simplify", // transposes cancel with the model's own, so that values are seen to be laid out
      "sink-transposes",
      "sink-views",
      "simplify",
      "cse",
      "share-reductions", // when equal tensors are one
      "simplify-shapes",
      "dce",
  };
  return names;
}

const PassDef* find_graph_pass(std::string_view name) {
  for (const PassDef& pass : graph_passes())
    if (pass.name == name) return &pass;
  return nullptr;
}

std::string GraphSubject::text() const { return print(graph_); }
Status GraphSubject::verify() const { return tessera::verify(graph_); }
int GraphSubject::size() const {
  int n = 0;
  for (int i = 0; i < graph_.node_count(); ++i) n += graph_.node(NodeId{i}).removed ? 0 : 1;
  return n;
}

Result<std::vector<PassStats>> run_pipeline(Graph& graph, const PipelineOptions& options) {
  std::vector<PassStep> steps;
  for (const std::string& name : options.passes.empty() ? default_pipeline() : options.passes) {
    const PassDef* pass = find_graph_pass(name);
    if (!pass) {
      std::string known;
      for (const PassDef& p : graph_passes()) known += (known.empty() ? "" : ", ") + std::string(p.name);
      return Diagnostic(ErrorCode::Usage, "there is no pass '" + name + "'").note("passes are " + known);
    }
    steps.push_back({pass->name, [&, pass] { return pass->run(graph, options.options); }});
  }
  PassRunOptions run = options.run;
  for (const std::string& name : run.disabled)
    if (!find_graph_pass(name))
      return Diagnostic(ErrorCode::Usage, "cannot disable pass '" + name + "': there is no such pass");
  for (std::string& name : passes_disabled_by_environment()) run.disabled.push_back(std::move(name));
  GraphSubject subject(graph);
  return run_steps(subject, steps, run);
}

} // namespace tessera
