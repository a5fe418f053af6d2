// The table of passes, the default pipeline, and the runner: everything about passes that is not their work.
#include "graph/passes/pass.h"
#include "graph/passes/passes.h"
#include "graph/support/log.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace tessera {

const std::vector<PassDef>& graph_passes() {
  static const std::vector<PassDef> table = {
      {"simplify-shapes", "states every size by what is known of its symbols", passes::simplify_shapes},
      {"decompose", "replaces composite operators by primitives", passes::decompose},
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

namespace {
#ifdef TESSERA_DEBUG
constexpr bool kDebug = true;
#else
constexpr bool kDebug = false;
#endif

int live_nodes(const Graph& graph) {
  int n = 0;
  for (int i = 0; i < graph.node_count(); ++i) n += !graph.node(NodeId{i}).removed;
  return n;
}

Result<std::vector<std::string>> disabled_passes(const PipelineOptions& options) {
  std::vector<std::string> out = options.disabled;
  const char* text = std::getenv("TESSERA_DISABLE_PASSES");
  std::string_view rest = text ? text : "";
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    if (std::string_view one = rest.substr(0, comma); !one.empty()) out.emplace_back(one);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  for (const std::string& name : out)
    if (!find_graph_pass(name))
      return Diagnostic(ErrorCode::Usage, "cannot disable pass '" + name + "': there is no such pass");
  return out;
}

std::string dump_name(size_t position, std::string_view pass) {
  char number[24];
  std::snprintf(number, sizeof number, "%03zu", position);
  return std::string(number) + "-" + std::string(pass) + ".graph";
}
} // namespace

Result<std::vector<PassStats>> run_pipeline(Graph& graph, const PipelineOptions& options) {
  const std::vector<std::string>& names = options.passes.empty() ? default_pipeline() : options.passes;
  std::vector<const PassDef*> sequence;
  for (const std::string& name : names) {
    const PassDef* pass = find_graph_pass(name);
    if (!pass) {
      std::string known;
      for (const PassDef& p : graph_passes()) known += (known.empty() ? "" : ", ") + std::string(p.name);
      return Diagnostic(ErrorCode::Usage, "there is no pass '" + name + "'").note("passes are " + known);
    }
    sequence.push_back(pass);
  }
  TESSERA_ASSIGN(const std::vector<std::string> disabled, disabled_passes(options));
  if (dump_enabled()) write_dump(dump_name(0, "input"), print(graph));
  std::vector<PassStats> all;
  for (size_t i = 0; i < sequence.size(); ++i) {
    const PassDef& pass = *sequence[i];
    if (std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end()) continue;
    auto fail = [&](Diagnostic d) {
      d.message = "failed in pass " + std::string(pass.name) + ": " + d.message;
      return d;
    };
    CheckContext context("pass " + std::string(pass.name) + " on graph " + graph.name());
    PassStats stats;
    stats.name = pass.name;
    stats.nodes_before = live_nodes(graph);
    const std::string before = kDebug ? print(graph) : "";
    auto start = std::chrono::steady_clock::now();
    auto changed = pass.run(graph, options.options);
    stats.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (!changed.ok()) return fail(std::move(changed).take_error());
    stats.changed = *changed;
    stats.nodes_after = live_nodes(graph);
    if (kDebug && !stats.changed)
      TESSERA_CHECK(print(graph) == before,
                    "pass " + std::string(pass.name) + " changed the graph and said that it did not");
    if (stats.changed && (kDebug || options.verify))
      if (auto status = verify(graph); !status.ok()) return fail(std::move(status).take_error());
    if (log_enabled(LogChannel::Passes)) {
      char line[160];
      std::snprintf(line, sizeof line, "%-16s %-9s %5d -> %5d nodes  %.2f ms", stats.name.c_str(),
                    stats.changed ? "changed" : "unchanged", stats.nodes_before, stats.nodes_after, stats.milliseconds);
      log_write(LogChannel::Passes, line);
    }
    if (stats.changed && dump_enabled()) write_dump(dump_name(i + 1, pass.name), print(graph));
    all.push_back(std::move(stats));
  }
  return all;
}

} // namespace tessera
