#include "graph/infer/infer.h"
#include "graph/ir/graph.h"
#include "graph/ir/sizes.h"
#include "graph/ir/types_match.h"
#include <unordered_set>

namespace tessera {

namespace {

Status verify_at(Graph& graph, int depth);

Diagnostic at_node(const Node& n, std::string message) {
  Location where = n.location;
  if (where.op.empty()) where.op = std::string(n.op->name);
  return {ErrorCode::Internal, where, "invalid graph: " + std::move(message)};
}

std::string called(const Graph& graph, ValueId v) {
  const std::string& name = graph.value(v).name;
  return name.empty() ? "value " + std::to_string(v.index) : "'" + name + "'";
}

Status verify_node(Graph& graph, NodeId id, std::vector<bool>& defined, int depth) {
  const Node& n = graph.node(id);
  for (size_t i = 0; i < n.operands.size(); ++i) {
    ValueId v = n.operands[i];
    if (!v.valid()) continue;
    if (!defined[static_cast<size_t>(v.index)])
      return at_node(n, "operand " + std::to_string(i) + ", " + called(graph, v) + ", is used before its definition");
  }
  for (size_t r = 0; r < n.results.size(); ++r) {
    ValueId v = n.results[r];
    if (!v.valid()) continue;
    const Value& value = graph.value(v);
    if (value.producer != id || value.result != static_cast<int>(r))
      return at_node(n, "result " + std::to_string(r) + ", " + called(graph, v) + ", names another producer");
    if (defined[static_cast<size_t>(v.index)]) return at_node(n, called(graph, v) + " is defined twice");
    defined[static_cast<size_t>(v.index)] = true;
    if (value.contents && product(value.type.shape) != SymExpr(static_cast<int64_t>(value.contents->size())))
      return at_node(n, called(graph, v) + " has contents of another size than its type " + value.type.str());
  }
  Attributes attributes = n.attributes;
  if (auto status = complete_attributes(*n.op, attributes); !status.ok()) return at_node(n, status.error().message);
  if (attributes.items().size() != n.attributes.items().size()) return at_node(n, "attributes lack their defaults");
  for (const auto& [name, attribute] : n.attributes.items())
    if (auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute)) TESSERA_TRY(verify_at(**subgraph, depth + 1));

  size_t symbols_before = graph.env().symbols().size();
  InferContext context{graph, n, static_cast<int>(n.results.size()), {}, {}};
  if (auto status = infer_node(context); !status.ok()) return at_node(n, "inference fails: " + status.error().message);
  FreshSymbols fresh(graph.env(), symbols_before);
  // A size that the node defines agrees with whatever is known of it by now.
  for (const DefinedSize& d : defined_sizes(graph, n)) fresh.add(d.symbol);
  for (size_t r = 0; r < n.results.size(); ++r) {
    if (!n.results[r].valid()) continue;
    const TensorType& type = graph.type(n.results[r]);
    if (!types_match(graph.env(), type, context.results[r], fresh))
      return at_node(n, "result " + std::to_string(r) + " has type " + type.str() + ", but inference yields " +
                            context.results[r].str());
  }
  return {};
}

// Ids that point nowhere: found before anything follows them.
Status verify_ids(const Graph& graph) {
  for (int32_t i = 0; i < graph.node_count(); ++i) {
    const Node& n = graph.node(NodeId{i});
    if (n.removed) continue;
    TESSERA_CHECK(n.op != nullptr, "a node without an operator");
    for (size_t k = 0; k < n.operands.size(); ++k)
      if (n.operands[k].index >= graph.value_count())
        return at_node(n, "operand " + std::to_string(k) + " is value " + std::to_string(n.operands[k].index) +
                              ", which does not exist");
    for (size_t r = 0; r < n.results.size(); ++r)
      if (n.results[r].index >= graph.value_count())
        return at_node(n, "result " + std::to_string(r) + " does not exist");
  }
  for (int32_t i = 0; i < graph.value_count(); ++i)
    if (graph.value(ValueId{i}).producer.index >= graph.node_count())
      return Diagnostic(ErrorCode::Internal,
                        "invalid graph: the producer of " + called(graph, ValueId{i}) + " does not exist");
  return {};
}

Status verify_at(Graph& graph, int depth) {
  TESSERA_TRY(verify_ids(graph));
  if (depth > 64) return Diagnostic(ErrorCode::Internal, "invalid graph: subgraphs are nested too deeply");
  std::vector<bool> defined(static_cast<size_t>(graph.value_count()), false);
  for (ValueId v : graph.inputs()) {
    if (!v.valid() || v.index >= graph.value_count())
      return Diagnostic(ErrorCode::Internal, "invalid graph: an input does not exist");
    if (defined[static_cast<size_t>(v.index)])
      return Diagnostic(ErrorCode::Internal, "invalid graph: input " + called(graph, v) + " is listed twice");
    if (graph.value(v).producer.valid())
      return Diagnostic(ErrorCode::Internal, "invalid graph: input " + called(graph, v) + " has a producer");
    defined[static_cast<size_t>(v.index)] = true;
  }
  std::unordered_set<std::string_view> names;
  auto unique = [&](ValueId v) { return graph.value(v).name.empty() || names.insert(graph.value(v).name).second; };
  for (ValueId v : graph.inputs())
    if (!unique(v))
      return Diagnostic(ErrorCode::Internal, "invalid graph: two values are called '" + graph.value(v).name + "'");
  for (NodeId id : graph.order()) {
    TESSERA_TRY(verify_node(graph, id, defined, depth));
    for (ValueId v : graph.node(id).results)
      if (v.valid() && !unique(v))
        return at_node(graph.node(id), "two values are called '" + graph.value(v).name + "'");
  }
  std::unordered_set<std::string_view> outputs;
  for (const Graph::Output& o : graph.outputs()) {
    if (!o.value.valid() || o.value.index >= graph.value_count() || !defined[static_cast<size_t>(o.value.index)])
      return Diagnostic(ErrorCode::Internal, "invalid graph: output '" + o.name + "' is not defined");
    if (!outputs.insert(o.name).second)
      return Diagnostic(ErrorCode::Internal, "invalid graph: two outputs are called '" + o.name + "'");
  }
  return {};
}

} // namespace

// Inference may learn (and so change the environment): it runs on a copy.
Status verify(const Graph& graph) {
  Graph copy = graph.clone();
  return verify_at(copy, 0);
}

} // namespace tessera
