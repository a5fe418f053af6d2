#include "codegen/driver/bodies.h"
#include "base/recover.h"
#include "codegen/driver/plan_file.h"
#include "graph/ir/sizes.h"
#include <unordered_set>

namespace tessera {
namespace {

// Whether the loop's condition holds after every iteration.
bool always_continues(const Graph& body) {
  const ValueId condition = body.outputs()[0].value;
  const auto& contents = body.value(condition).contents;
  if (contents && contents->size() == 1 && body.env().simplify(contents->front()).is_const(1)) return true;
  return condition == body.inputs()[1]; // which is true whenever the body runs
}

// Symbols from around the body that it needs and no input of it binds, in a fixed order.
std::vector<SymExpr> sizes_from_outside(const Graph& outer, const Graph& body) {
  std::unordered_set<uint64_t> known, outside;
  for (const SymExpr& s : outer.env().symbols()) outside.insert(s.symbol_id());
  for (ValueId v : body.inputs())
    for (const SymExpr& d : body.declared_shape(v))
      if (d.is_symbol()) known.insert(d.symbol_id());
  for (NodeId id : body.order())
    for (const DefinedSize& d : defined_sizes(body, body.node(id)))
      if (&outer.env() == &body.env() || !outside.contains(d.symbol.symbol_id())) known.insert(d.symbol.symbol_id());
  std::vector<SymExpr> out;
  auto add = [&](const SymExpr& e) {
    for (const SymExpr& s : e.symbols())
      if (outside.contains(s.symbol_id()) && known.insert(s.symbol_id()).second) out.push_back(s);
  };
  for (const SymExpr& e : all_sizes(body)) {
    add(e);
    add(body.env().simplify(e)); // what a pass may write in its place
  }
  return out;
}

} // namespace

Result<std::vector<BodyGraph>> body_graphs(const Graph& graph, NodeId id, ControlCode* code) {
  failure_point("bodies");
  ControlCode made;
  if (code == nullptr) code = &made;
  TESSERA_ASSIGN(code->form, ops::control_form(graph.node(id)));
  std::vector<BodyGraph> out;
  for (const auto& form : code->form.bodies) {
    BodyGraph body{form.graph->clone(), {}};
    if (code->form.conditions() > 0) {
      code->continues = !always_continues(body.graph);
      if (!code->continues) body.graph.outputs().erase(body.graph.outputs().begin());
    }
    for (size_t i = 0; i < body.graph.inputs().size(); ++i) body.inputs.push_back({static_cast<int>(i), 0});
    for (const SymExpr& s : sizes_from_outside(graph, body.graph)) {
      body.graph.add_input("size." + s.symbol_name(), {DType::I8, {0, s}});
      body.inputs.push_back({-1, graph.env().simplify(s)});
    }
    out.push_back(std::move(body));
  }
  return out;
}

Result<ControlCode> compile_bodies(const Graph& graph, NodeId id, const CompileOptions& options,
                                   const std::string& dump_prefix) {
  ControlCode code;
  TESSERA_ASSIGN(std::vector<BodyGraph> bodies, body_graphs(graph, id, &code));
  for (size_t b = 0; b < bodies.size(); ++b) {
    const std::string prefix = dump_prefix + "n" + std::to_string(id.index) + "b" + std::to_string(b) + "-";
    CompileOptions own = options;
    own.plan = nullptr;
    if (options.plan) { // the file has a part for each body
      const auto& parts = options.plan->bodies;
      if (auto part = parts.find(body_key(NodeKeys(graph), id, b)); part != parts.end()) own.plan = part->second;
    }
    auto compiled = compile(std::move(bodies[b].graph), own, prefix);
    if (!compiled.ok()) return std::move(compiled).take_error().note("in a body of " + graph.node(id).location.str());
    code.bodies.push_back({std::make_shared<const Compiled>(std::move(*compiled)), std::move(bodies[b].inputs)});
  }
  return code;
}

} // namespace tessera
