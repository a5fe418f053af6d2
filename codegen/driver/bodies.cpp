#include "codegen/driver/bodies.h"
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

Result<BodyCode> compile_body(const Graph& outer, Graph body, const CompileOptions& options,
                              const std::string& dump_prefix) {
  BodyCode code;
  for (size_t i = 0; i < body.inputs().size(); ++i) code.inputs.push_back({static_cast<int>(i), 0});
  for (const SymExpr& s : sizes_from_outside(outer, body)) {
    body.add_input("size." + s.symbol_name(), {DType::I8, {0, s}});
    code.inputs.push_back({-1, outer.env().simplify(s)});
  }
  TESSERA_ASSIGN(Compiled compiled, compile(std::move(body), options, dump_prefix));
  code.compiled = std::make_shared<const Compiled>(std::move(compiled));
  return code;
}

} // namespace

Result<ControlCode> compile_bodies(const Graph& graph, NodeId id, const CompileOptions& options,
                                   const std::string& dump_prefix) {
  const Node& node = graph.node(id);
  ControlCode code;
  TESSERA_ASSIGN(code.form, ops::control_form(node));
  for (size_t b = 0; b < code.form.bodies.size(); ++b) {
    Graph body = code.form.bodies[b].graph->clone();
    if (code.form.conditions() > 0) {
      code.continues = !always_continues(body);
      if (!code.continues) body.outputs().erase(body.outputs().begin());
    }
    const std::string prefix = dump_prefix + "n" + std::to_string(id.index) + "b" + std::to_string(b) + "-";
    auto compiled = compile_body(graph, std::move(body), options, prefix);
    if (!compiled.ok()) return std::move(compiled).take_error().note("in a body of " + node.location.str());
    code.bodies.push_back(std::move(*compiled));
  }
  return code;
}

} // namespace tessera
