// Calls of local functions, branches that are already decided, and subgraphs that stay.
#include "frontend/onnx/graph_builder.h"
#include <algorithm>

namespace tessera::onnx {

namespace {

std::string function_name(const proto::FunctionProto& f) { return full_op_name(f.domain(), f.name()); }

} // namespace

Status GraphBuilder::enter(const Location& where) {
  if (nesting_ < kMaxNesting) return {};
  return Diagnostic(ErrorCode::UnsupportedFeature, where,
                    "functions and subgraphs are nested deeper than " + std::to_string(kMaxNesting) + " levels");
}

Status GraphBuilder::count(const Location& where) {
  ++out_.info.nodes;
  if (++imported_ <= in_file_ + kMaxInlined) return {};
  return Diagnostic(ErrorCode::UnsupportedFeature, where,
                    "is node " + std::to_string(imported_) +
                        " once functions, branches and loops are inlined; the file has " + std::to_string(in_file_) +
                        " nodes, and inlining may add " + std::to_string(kMaxInlined) + " at most")
      .note("functions that call others several times, or nested loops and branches, multiply");
}

const ValueId* GraphBuilder::find_value(const Scope& scope, std::string_view name) {
  if (auto it = scope.values.find(name); it != scope.values.end()) return &it->second;
  if (scope.outer == nullptr) return nullptr;
  const ValueId* found = find_value(*scope.outer, name);
  if (found == nullptr || &scope.outer->into == &scope.into || !found->valid()) return found;
  // A value of another Graph: a literal is repeated, anything else becomes an input here and an operand there.
  Graph& inner = scope.into.graph;
  const Graph& around = scope.outer->into.graph;
  ValueId id;
  if (const Tensor* literal = around.constant(*found)) {
    id = inner.add_constant(*literal, scope.into.unique(std::string(name)));
  } else {
    id = inner.add_input(scope.into.unique(std::string(name)), around.type(*found));
    inner.value(id).contents = around.value(*found).contents;
    scope.into.captured.push_back(*found);
  }
  return &scope.values.emplace(name, id).first->second;
}

Result<ValueId> GraphBuilder::lookup(const Scope& scope, const std::string& name, const Location& where) {
  if (const ValueId* id = find_value(scope, name)) return *id;
  reads_unknown_ = reads_unknown_ || scope.is_unknown(name);
  return Diagnostic(ErrorCode::MalformedModel, where, "reads '" + name + "', which nothing defines");
}

Status GraphBuilder::inline_call(Scope& scope, const proto::NodeProto& node, const proto::FunctionProto& function,
                                 const BoundAttributes& attributes, const Location& where) {
  std::string shown = "function '" + function_name(function) + "'";
  if (std::find(calls_.begin(), calls_.end(), &function) != calls_.end())
    return Diagnostic(ErrorCode::MalformedModel, where, shown + " calls itself");
  TESSERA_TRY(enter(where));
  Nesting nesting(nesting_);
  if (node.input_size() > function.input_size() || node.output_size() > function.output_size())
    return Diagnostic(ErrorCode::MalformedModel, where,
                      shown + " takes " + std::to_string(function.input_size()) + " and yields " +
                          std::to_string(function.output_size()) + " values, and is called with " +
                          std::to_string(node.input_size()) + " for " + std::to_string(node.output_size()));

  std::map<std::string_view, BoundAttribute> given;
  Scope body{scope.into, nullptr, &functions_.opsets(function), &given, body_prefix(where)};
  for (const auto& a : function.attribute_proto()) given[a.name()] = {&a, &body};
  for (const auto& [name, bound] : attributes) {
    bool known = given.contains(name) || std::find(function.attribute().begin(), function.attribute().end(), name) !=
                                             function.attribute().end();
    if (!known)
      return Diagnostic(ErrorCode::BadAttribute, where, shown + " has no attribute '" + std::string(name) + "'");
    given[name] = bound;
  }
  for (int i = 0; i < function.input_size(); ++i) {
    ValueId id;
    if (i < node.input_size() && !node.input(i).empty()) {
      if (scope.follow_unknown(node.input(i), body, function.input(i))) continue;
      TESSERA_ASSIGN(id, lookup(scope, node.input(i), where));
    }
    body.values.emplace(function.input(i), id);
  }
  for (int i = 0; i < node.output_size(); ++i)
    if (!node.output(i).empty()) body.result_names[function.output(i)] = name_of_result(scope, node.output(i));

  body.read.insert(function.output().begin(), function.output().end());
  calls_.push_back(&function);
  Status status = add_nodes(body, function.node());
  calls_.pop_back();
  if (!status.ok()) return std::move(status).take_error().note("in " + shown + ", called by " + where.str());
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty() || body.follow_unknown(function.output(i), scope, node.output(i))) continue;
    const ValueId* id = find_value(body, function.output(i));
    if (id == nullptr)
      return Diagnostic(ErrorCode::MalformedModel, where,
                        shown + " does not define its output '" + function.output(i) + "'");
    TESSERA_TRY(define(scope, node.output(i), *id, where));
  }
  return {};
}

Result<bool> GraphBuilder::inline_branch(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                                         const Location& where, std::optional<int64_t> decided) {
  if (node.input_size() != 1) return false; // the operator's record says what is wrong
  TESSERA_ASSIGN(ValueId condition, lookup(scope, node.input(0), where));
  if (!condition.valid()) return false;
  Graph& graph = scope.into.graph;
  if (const Tensor* literal = graph.constant(condition); !decided && literal != nullptr &&
                                                         literal->dtype() == DType::Bool && literal->count() == 1 &&
                                                         literal->data() != nullptr) {
    decided = literal->get_i64(0);
  } else if (const auto& contents = graph.value(condition).contents; !decided && contents && contents->size() == 1) {
    const SymExpr c = graph.env().simplify(contents->front());
    // Sizes are taken to differ, as everywhere, where a call has not said what they are. Which of two is the larger is
    // no guess to make: both branches are compiled. So they are where a size may change from iteration to iteration.
    const std::vector<SymExpr> symbols = c.symbols();
    const std::vector<SymExpr>& all = out_.graph.env().symbols();
    const bool stays = std::all_of(symbols.begin(), symbols.end(),
                                   [&](const SymExpr& s) { return std::find(all.begin(), all.end(), s) != all.end(); });
    const bool usual = c.op() == SymOp::Eq || c.op() == SymOp::Ne;
    const bool known = graph.env().prove(c) || graph.env().hint(c);
    if (graph.env().prove(c) || (stays && (usual || known))) {
      const bool way = known ? c.op() != SymOp::Eq : choices_.next(c.op() != SymOp::Eq);
      TESSERA_ASSIGN(decided, graph.env().decide(c, way, "which branch is taken", where));
    }
  }
  if (!decided) return false;

  std::string_view wanted = *decided != 0 ? "then_branch" : "else_branch";
  auto it = std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) { return a.first == wanted; });
  if (it == attributes.end())
    return Diagnostic(ErrorCode::BadAttribute, where, "attribute '" + std::string(wanted) + "' is missing");
  const BoundAttribute& bound = it->second;
  if (bound.value->type() != proto::AttributeProto::GRAPH) return wrong_attribute_type(*bound.value, "GRAPH", where);
  if (&bound.scope->into != &scope.into) return false;
  const auto& branch = bound.value->g();
  if (branch.input_size() != 0 || branch.output_size() != node.output_size())
    return Diagnostic(ErrorCode::MalformedModel, where,
                      "subgraph '" + std::string(wanted) + "' has " + std::to_string(branch.input_size()) +
                          " inputs and " + std::to_string(branch.output_size()) + " outputs; none and " +
                          std::to_string(node.output_size()) + " are expected");
  TESSERA_TRY(enter(where));
  Nesting nesting(nesting_);
  Scope body{scope.into, bound.scope, bound.scope->opsets, bound.scope->function, body_prefix(where)};
  for (int i = 0; i < node.output_size(); ++i)
    if (!node.output(i).empty()) body.result_names[branch.output(i).name()] = name_of_result(scope, node.output(i));
  for (const auto& v : branch.output()) body.read.insert(v.name());
  // A branch inside may be refused, and be built again with what stands behind this one: nothing of the first time stays.
  const bool nests = std::any_of(branch.node().begin(), branch.node().end(),
                                 [](const proto::NodeProto& n) { return n.op_type() == "If"; });
  const int nodes = graph.node_count();
  std::optional<ShapeEnv> before;
  if (nests) before = graph.env();
  TESSERA_TRY(add_initializers(body, branch, false));
  if (Status added = add_nodes(body, branch.node()); !added.ok()) {
    if (open_choice_ != nullptr && before) {
      for (int i = nodes; i < graph.node_count(); ++i) graph.node(NodeId{i}).removed = true;
      graph.env() = std::move(*before);
    }
    if (open_choice_ != nullptr) open_choice_ = &node; // one inside, whose results this one yields
    return std::move(added).take_error();
  }
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty() || body.follow_unknown(branch.output(i).name(), scope, node.output(i))) continue;
    TESSERA_ASSIGN(ValueId id, lookup(body, branch.output(i).name(), where));
    TESSERA_TRY(define(scope, node.output(i), id, where));
  }
  return true;
}

Result<std::shared_ptr<Graph>> GraphBuilder::subgraph(const Scope& around, std::shared_ptr<ShapeEnv> env,
                                                      const proto::GraphProto& graph, const std::string& prefix,
                                                      const std::vector<TensorType>& types, bool loop,
                                                      std::vector<ValueId>& captured, const Location& where) {
  TESSERA_TRY(enter(where));
  Nesting nesting(nesting_);
  auto out = std::make_shared<Graph>(identifier(graph.name().empty() ? "body" : graph.name()), std::move(env));
  PartialGraph inner{*out, {}, {}};
  Scope body{inner, &around, around.opsets, around.function, prefix};
  std::unordered_set<std::string_view> weights;
  for (const auto& t : graph.initializer()) weights.insert(t.name());
  size_t k = 0;
  for (const auto& v : graph.input()) {
    if (weights.contains(v.name())) continue;
    TensorType type;
    if (k < types.size()) {
      type = types[k];
    } else {
      TESSERA_ASSIGN(type, dimensions_.input_type(v, false, where));
    }
    ValueId id = out->add_input(inner.unique(v.name()), std::move(type));
    if (loop && k == 1) out->value(id).contents = std::vector<SymExpr>{1};
    ++k;
    if (v.name().empty() || !body.values.emplace(v.name(), id).second)
      return Diagnostic(ErrorCode::MalformedModel, where,
                        "subgraph input '" + v.name() + "' has no name, or that of another");
  }
  for (const auto& v : graph.output()) body.read.insert(v.name());
  TESSERA_TRY(add_initializers(body, graph, false));
  TESSERA_TRY(add_nodes(body, graph.node()));
  std::unordered_set<std::string> names;
  for (const auto& v : graph.output()) {
    TESSERA_ASSIGN(ValueId id, lookup(body, v.name(), where));
    if (!id.valid())
      return Diagnostic(ErrorCode::MalformedModel, where, "subgraph output '" + v.name() + "' is left out");
    std::string name = v.name(); // one value may be yielded twice
    for (int i = 1; !names.insert(name).second; ++i) name = v.name() + "_" + std::to_string(i);
    out->add_output(std::move(name), id);
  }
  captured = std::move(inner.captured);
  return out;
}

} // namespace tessera::onnx
