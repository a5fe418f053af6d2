#include "codegen/schedule/index_sites.h"
#include "graph/ops/questions.h"

namespace tessera {
namespace {

// The scatter whose targets are made of the value, by arithmetic and views.
const Node* scatter_of(const Graph& graph, ValueId targets) {
  std::vector<ValueId> from{targets};
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    const auto reads = std::find_if(n.operands.begin(), n.operands.end(),
                                    [&](ValueId v) { return std::find(from.begin(), from.end(), v) != from.end(); });
    if (reads == n.operands.end()) continue;
    if (ops::is(n, Structured::Scatter) && ops::piece_of(n) == ops::Piece::Rows) return &n;
    from.insert(from.end(), n.results.begin(), n.results.end());
  }
  return nullptr;
}

// The tensor of tuples of which an operator checks one component: before the views that came from the same operator.
ValueId tuples_of(const Graph& graph, const Node& check) {
  ValueId v = check.operands[0];
  while (graph.value(v).producer.valid() && !check.location.node.empty()) {
    const Node& view = graph.node(graph.value(v).producer);
    if (view.location.node != check.location.node || view.operands.empty() || !view.operands[0].valid()) break;
    v = view.operands[0];
  }
  return graph.type(v).shape.empty() ? check.operands[0] : v;
}

IndexCheck check_of(const Graph& graph, const LoopNest& nest, ScalarId id) {
  IndexCheck check;
  const ScalarNode& n = nest.dag[id];
  check.from_end = n.masked;
  ScalarId extent = n.args[1];
  if (nest.dag[extent].op == ScalarOp::Select) extent = nest.dag[extent].args[1]; // under a predicate (Expander::copy)
  check.extent = nest.dag.as_sym(extent);
  while (check.extent && check.extent->op() == SymOp::Select) {
    const std::span<const SymExpr> either = check.extent->args();
    check.extent = SymExpr(either[either[2].is_const(1) ? 1 : 2]);
  }
  ValueId table;
  if (n.i > 0) {
    const Node& source = graph.node(NodeId{static_cast<int32_t>(n.i - 1)});
    ValueId indices = source.operands[static_cast<size_t>(n.operand)];
    check.shape = graph.type(indices).shape;
    check.node = source.location.node.empty() ? std::string(source.op->name) : source.location.node;
    table = source.operands[0];
    if (ops::checks_of(source) == ops::Checks::Condition) {
      check.failure = source.attributes.s("message", "");
      table = {};
      if (check.shape.empty()) indices = {}; // a condition for all elements: none is at fault
    } else if (ops::checks_of(source) == ops::Checks::Index) {
      const Node* scatter = scatter_of(graph, source.results[0]);
      table = scatter ? scatter->operands[0] : ValueId{};
      check.component = static_cast<int>(source.attributes.i("component", -1));
      if (check.component >= 0) indices = tuples_of(graph, source);
      if (check.component >= 0 && indices != source.operands[0]) {
        check.shape = graph.type(indices).shape;
        check.shape.pop_back();
      }
    }
    if (indices.valid()) check.indices = graph.value(indices).name;
  } else { // a nest without a graph
    for (ScalarId l = 0; l < nest.dag.size(); ++l) {
      const ScalarNode& load = nest.dag[l];
      if (load.op == ScalarOp::Load && std::find(load.args.begin(), load.args.end(), id) != load.args.end())
        table = nest.loads[static_cast<size_t>(load.operand)];
    }
  }
  if (table.valid()) check.table = graph.value(table).name;
  return check;
}

} // namespace

IndexSites index_sites(const Graph& graph, const LoopNest& nest, const Domain& domain) {
  IndexSites sites;
  sites.of.assign(domain.live.size(), -1);
  std::vector<ScalarId> checks;
  for (ScalarId id = 0; id < nest.dag.size(); ++id)
    if (domain.live[static_cast<size_t>(id)] && nest.dag[id].op == ScalarOp::CheckBounds) checks.push_back(id);
  // Nodes are numbered in the order of the graph (Graph::compact).
  auto order = [&](ScalarId id) {
    const ScalarNode& n = nest.dag[id];
    return std::pair(n.i > 0 ? n.i : INT64_MAX, n.operand);
  };
  std::stable_sort(checks.begin(), checks.end(), [&](ScalarId a, ScalarId b) { return order(a) < order(b); });
  for (ScalarId id : checks) {
    // The last site is for all that are too many.
    const int site = std::min(static_cast<int>(sites.checks.size()), IndexReport::kSites - 1);
    sites.of[static_cast<size_t>(id)] = site;
    if (site == static_cast<int>(sites.checks.size())) sites.checks.push_back(check_of(graph, nest, id));
  }
  return sites;
}

} // namespace tessera
