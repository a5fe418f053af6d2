// The passes, and what they share. Private to graph/passes; pass.cpp has the table.
#pragma once
#include "graph/ir/operator.h"
#include "graph/passes/pass.h"
#include "graph/scalar/scalar.h"

namespace tessera::passes {

[[nodiscard]] Result<bool> simplify_shapes(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> decompose(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> narrow(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> fold_shapes(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> fold(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> simplify(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> cse(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> dce(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> channels_last(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> sink_transposes(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> share_reductions(Graph& graph, const PassOptions& options);
[[nodiscard]] Result<bool> sink_views(Graph& graph, const PassOptions& options);

// An integer option, such as "fold.limit"; error Usage when its text is no number.
[[nodiscard]] Result<int64_t> option(const PassOptions& options, const std::string& name, int64_t fallback);

// One sweep over a graph in topological order. The rule sees each node with its operands already rewritten, and may
// yield what takes the place of its results: one value each, appended nodes or old ones, an invalid value where a
// result stays; an empty vector changes nothing. Appended nodes are visited, too, before the node's users. Replaced
// values give their names and contents to their successors; nodes without a result left are removed. Linear but for
// what rules do. A rule whose nodes are rewritten again and again, deeper than the graph has nodes, is an Internal error.
class Sweep {
public:
  explicit Sweep(Graph& graph) : graph_(graph) {}
  using Rule = std::function<Result<std::vector<ValueId>>(NodeId)>;
  // Returns whether anything was replaced.
  [[nodiscard]] Result<bool> run(const Rule& rule);

private:
  [[nodiscard]] Status visit(NodeId first, const Rule& rule);
  [[nodiscard]] Status finish(NodeId id, const std::vector<ValueId>& values);
  [[nodiscard]] ValueId resolve(ValueId v);
  [[nodiscard]] Status replace(ValueId from, ValueId to, const Location& where);

  Graph& graph_;
  std::vector<ValueId> by_value_;
  std::vector<NodeId> emptied_;
  size_t deepest_ = 0; // levels of nodes that rules append for nodes that rules have appended
};

// Rules of `simplify`, of which the first that applies counts; an invalid value: none does.
[[nodiscard]] Result<ValueId> simplify_arithmetic(Graph& graph, NodeId id);
[[nodiscard]] Result<ValueId> simplify_view(Graph& graph, NodeId id);

[[nodiscard]] inline bool is_op(const Node* node, std::string_view name) {
  return node != nullptr && node->op->name == name;
}
// Adds a node in the place of `like`: same location.
[[nodiscard]] Result<ValueId> emit(Graph& graph, const Location& like, std::string_view op,
                                   std::vector<ValueId> operands, Attributes attributes = {});

} // namespace tessera::passes
