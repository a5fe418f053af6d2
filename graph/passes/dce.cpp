// dce: what no output depends on goes; ids are renumbered.
#include "graph/passes/passes.h"

namespace tessera::passes {

Result<bool> dce(Graph& graph, const PassOptions&) {
  std::vector<bool> live(static_cast<size_t>(graph.node_count()), false);
  std::vector<NodeId> pending;
  auto mark = [&](ValueId v) {
    if (!v.valid()) return;
    NodeId p = graph.value(v).producer;
    if (!p.valid() || live[static_cast<size_t>(p.index)]) return;
    live[static_cast<size_t>(p.index)] = true;
    pending.push_back(p);
  };
  for (const Graph::Output& o : graph.outputs()) mark(o.value);
  while (!pending.empty()) {
    NodeId id = pending.back();
    pending.pop_back();
    for (ValueId v : graph.node(id).operands) mark(v);
  }
  bool changed = false;
  for (int i = 0; i < graph.node_count(); ++i) {
    if (graph.node(NodeId{i}).removed || live[static_cast<size_t>(i)]) continue;
    graph.remove_node(NodeId{i});
    changed = true;
  }
  graph.compact();
  return changed;
}

} // namespace tessera::passes
