#include "codegen/driver/planned_operators.h"
#include "codegen/driver/bodies.h"
#include "codegen/driver/pipeline.h"

namespace tessera {

namespace {

DType dtype_of(const Graph& graph, const Node& node) {
  std::optional<DType> out;
  for (const auto* values : {&node.operands, &node.results})
    for (ValueId v : *values) {
      if (!v.valid()) continue;
      if (graph.type(v).dtype != DType::Bool) return graph.type(v).dtype;
      out = DType::Bool;
    }
  return out.value_or(DType::F32);
}

// A number that the host makes or reads: no operator that anybody wrote.
bool is_of_the_host(const Node& node) {
  const auto* structured = node.op->structured();
  return structured && (structured->kind == Structured::Read || structured->kind == Structured::Seed);
}

class Planner {
public:
  Planner(Backend& backend, const CompileOptions& options) : backend_(backend), options_(options) {}

  Status plan(Graph graph) {
    TESSERA_ASSIGN(const std::vector<std::string> pipeline, compile_pipeline(options_.device));
    Compilation compilation(graph, backend_, options_);
    PassRunOptions run;
    run.disabled = options_.disabled_passes;
    TESSERA_ASSIGN([[maybe_unused]] auto stats, run_passes(compilation, pipeline, std::move(run)));
    for (const Group& group : compilation.plan().groups) TESSERA_TRY(add(graph, group));
    return {};
  }

  std::vector<PlannedOperator> out;

private:
  void add(const Graph& graph, NodeId id, ComputedBy by, const std::string& why = "") {
    const Node& node = graph.node(id);
    if (!is_of_the_host(node)) out.push_back({node.op->name, node.location, dtype_of(graph, node), by, why});
  }

  Status add(const Graph& graph, const Group& group) {
    switch (group.kind) {
    case Group::Kind::Alias: return {};
    case Group::Kind::Host: add(graph, group.node, ComputedBy::Host, group.host_reason); return {};
    case Group::Kind::Control: return add_bodies(graph, group.node);
    case Group::Kind::Library: {
      const ComputedBy attached = group.call.fixed ? ComputedBy::Library : ComputedBy::Generated;
      for (NodeId id : group.call.sources) add(graph, id, id == group.call.node ? ComputedBy::Library : attached);
      return {};
    }
    case Group::Kind::Attention:
    case Group::Kind::Kernel:
    case Group::Kind::Own: {
      const bool library = group.kind == Group::Kind::Attention;
      for (NodeId id : nodes_of(group)) add(graph, id, library ? ComputedBy::Library : ComputedBy::Generated);
      return {};
    }
    }
    TESSERA_UNREACHABLE("a kind of group without a rule");
  }

  // The operator itself is a jump; its bodies are graphs of their own.
  Status add_bodies(const Graph& graph, NodeId id) {
    add(graph, id, ComputedBy::Generated);
    TESSERA_ASSIGN(std::vector<BodyGraph> bodies, body_graphs(graph, id));
    for (BodyGraph& body : bodies)
      if (auto status = plan(std::move(body.graph)); !status.ok())
        return std::move(status).take_error().note("in a body of " + graph.node(id).location.str());
    return {};
  }

  Backend& backend_;
  const CompileOptions& options_;
};

} // namespace

std::string_view name(ComputedBy by) {
  switch (by) {
  case ComputedBy::Generated: return "generated";
  case ComputedBy::Library: return "library";
  case ComputedBy::Host: return "host";
  }
  return "";
}

std::vector<NodeId> nodes_of(const Group& g) {
  if (g.kind == Group::Kind::Kernel) return g.nest.sources;
  if (g.kind == Group::Kind::Library) return g.call.sources;
  if (g.kind == Group::Kind::Own) return g.node.valid() ? std::vector<NodeId>{g.node} : g.nest.sources;
  std::vector<NodeId> out;
  for (const auto& step : g.otherwise)
    for (NodeId id : nodes_of(step)) out.push_back(id);
  return out;
}

Result<std::vector<PlannedOperator>> planned_operators(Graph graph, Backend& backend, const CompileOptions& options) {
  Planner planner(backend, options);
  TESSERA_TRY(planner.plan(std::move(graph)));
  return std::move(planner.out);
}

} // namespace tessera
