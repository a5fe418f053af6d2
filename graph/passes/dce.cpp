// dce: what no output depends on goes; ids are renumbered. An output depends on the values it is computed from, and on
// their sizes: a node whose results' sizes depend on data stays where a size that only it defines is needed.
#include "graph/ir/sizes.h"
#include "graph/passes/passes.h"

namespace tessera::passes {

Result<bool> dce(Graph& graph, const PassOptions&) {
  std::vector<bool> live(static_cast<size_t>(graph.node_count()), false);
  std::vector<NodeId> pending;
  const SizeDefiners sizes(graph);
  auto mark_node = [&](NodeId p) {
    if (!p.valid() || live[static_cast<size_t>(p.index)]) return;
    live[static_cast<size_t>(p.index)] = true;
    pending.push_back(p);
  };
  auto mark = [&](ValueId v) {
    if (v.valid()) mark_node(graph.value(v).producer);
  };
  for (const Graph::Output& o : graph.outputs()) mark(o.value);
  for (const Guard& g : graph.env().guards()) sizes.needed_by(g.condition, mark_node); // it is checked at every call
  while (!pending.empty()) {
    NodeId id = pending.back();
    pending.pop_back();
    for (ValueId v : graph.node(id).operands) mark(v);
    sizes.needed_by(graph, id, mark_node);
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
