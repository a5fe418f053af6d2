#include "frontend/onnx/graph_builder.h"
#include "base/similar.h"
#include "frontend/onnx/known_operators.h"
#include "frontend/onnx/sequence_map.h"
#include "frontend/onnx/weights.h"
#include "graph/ir/sizes.h"
#include "symbols/input_rank.h"
#include <algorithm>

namespace tessera::onnx {

std::string PartialGraph::unique(std::string name) {
  if (name.empty() || names.insert(name).second) return name;
  for (int i = 1;; ++i) {
    std::string candidate = name + "_" + std::to_string(i);
    if (names.insert(candidate).second) return candidate;
  }
}

GraphBuilder::GraphBuilder(const ParsedModel& parsed, const ImportOptions& options, WeightLoader& weights,
                           Choices& choices, std::string file, ImportedModel& out)
    : parsed_(parsed), options_(options), weights_(weights), choices_(choices), file_(std::move(file)), out_(out),
      dimensions_(out.graph.env(), options, file_) {
  out.graph.env().set_hints(options.dim_hints, options.of_call);
}

Location GraphBuilder::model_location() const {
  Location where;
  where.file = file_;
  return where;
}

Status GraphBuilder::build() {
  const proto::ModelProto& model = *parsed_.model;
  if (model.ir_version() < kOldestIrVersion)
    return Diagnostic(model.has_ir_version() ? ErrorCode::UnsupportedFeature : ErrorCode::MalformedModel,
                      model_location(),
                      model.has_ir_version() ? "has IR version " + std::to_string(model.ir_version()) +
                                                   "; the oldest supported one is " + std::to_string(kOldestIrVersion)
                                             : "has no IR version: it is no ONNX model");
  if (model.ir_version() > proto::IR_VERSION)
    return Diagnostic(ErrorCode::UnsupportedFeature, model_location(),
                      "has IR version " + std::to_string(model.ir_version()) + "; the newest known one is " +
                          std::to_string(proto::IR_VERSION));
  if (!model.has_graph()) return Diagnostic(ErrorCode::MalformedModel, model_location(), "has no graph");
  TESSERA_ASSIGN(opsets_, read_opsets(model.opset_import(), file_, "the model", out_.warnings));
  if (model.ir_version() < kFirstIrWithOpsets) opsets_.emplace("", 1);
  if (opsets_.empty()) return Diagnostic(ErrorCode::MalformedModel, model_location(), "imports no opset");
  TESSERA_TRY(functions_.read(model, file_, out_.warnings));
  out_.info.format = "ONNX";
  out_.info.version = model.ir_version();
  for (const auto& [domain, version] : opsets_) out_.info.opsets[domain.empty() ? "ai.onnx" : domain] = version;
  out_.info.producer = model.producer_name() + (model.producer_version().empty() ? "" : " " + model.producer_version());
  out_.info.functions = model.functions_size();
  in_file_ = count_nodes(model.graph().node());
  for (const auto& f : model.functions()) in_file_ += count_nodes(f.node());

  PartialGraph main{out_.graph, {}, {}};
  Scope scope{main, nullptr, &opsets_, nullptr, ""};
  for (const auto& v : model.graph().value_info()) scope.declared.emplace(v.name(), &v);
  TESSERA_TRY(build_inputs(scope));
  TESSERA_TRY(add_initializers(scope, model.graph(), true));
  if (options_.undetermined) return build_undetermined(scope);
  for (const auto& v : model.graph().output()) scope.read.insert(v.name());
  TESSERA_TRY(add_nodes(scope, model.graph().node()));
  TESSERA_TRY(build_outputs(scope));
  warn_of_initializers(scope);
  if (!out_.graph.env().substitutions().empty()) out_.graph.simplify_shapes();
  return {};
}

Status GraphBuilder::build_inputs(Scope& scope) {
  const auto& graph = parsed_.model->graph();
  std::unordered_set<std::string_view> weights, seen;
  for (const auto& t : graph.initializer()) weights.insert(t.name());
  for (const auto& t : graph.sparse_initializer()) weights.insert(t.values().name());
  for (const auto& v : graph.input()) {
    if (v.name().empty()) return Diagnostic(ErrorCode::MalformedModel, model_location(), "an input has no name");
    if (!seen.insert(v.name()).second)
      return Diagnostic(ErrorCode::MalformedModel, model_location(), "two inputs are called '" + v.name() + "'");
    if (!weights.contains(v.name())) inputs_.push_back(&v);
  }
  TESSERA_TRY(dimensions_.read_options(graph, inputs_));
  for (const auto* v : inputs_) {
    auto type = dimensions_.input_type(*v, true, model_location());
    if (!type.ok() && refused_ != nullptr) {
      refused_->push_back({"", 0, std::nullopt, type.error()});
      scope.unknown.insert(v->name());
      continue;
    }
    if (!type.ok()) return std::move(type).take_error();
    ValueId id = scope.into.graph.add_input(scope.into.unique(v->name()), std::move(*type));
    scope.values.emplace(v->name(), id);
  }
  return {};
}

Status GraphBuilder::add_initializers(Scope& scope, const proto::GraphProto& graph, bool main) {
  auto place = [&](const std::string& name, const char* kind) {
    Location where = model_location();
    where.op = kind;
    where.output = name;
    return where;
  };
  auto add = [&](const std::string& name, Tensor tensor, const Location& where) -> Status {
    if (name.empty())
      return out_.warnings.push_back(where.str() + ": an initializer has no name and is ignored"), Status();
    auto [it, fresh] = scope.values.emplace(name, ValueId{});
    if (!fresh) out_.warnings.push_back(where.str() + ": '" + name + "' is defined twice; the last one counts");
    it->second = scope.into.graph.add_constant(std::move(tensor), scope.into.unique(scope.prefix + name));
    return {};
  };
  for (int i = 0; i < graph.initializer_size(); ++i) {
    const auto& t = graph.initializer(i);
    Location where = place(t.name(), "initializer");
    TESSERA_ASSIGN(Tensor tensor,
                   weights_.load(t, where, main ? parsed_.raw[static_cast<size_t>(i)] : std::string_view()));
    TESSERA_TRY(add(t.name(), std::move(tensor), where));
  }
  for (const auto& t : graph.sparse_initializer()) {
    Location where = place(t.values().name(), "sparse initializer");
    TESSERA_ASSIGN(Tensor tensor, weights_.load_sparse(t, where));
    TESSERA_TRY(add(t.values().name(), std::move(tensor), where));
  }
  return {};
}

Status GraphBuilder::add_nodes(Scope& scope, const Nodes& nodes) {
  TESSERA_ASSIGN(std::vector<int> order, topological_order(nodes, file_, scope.prefix));
  if (auto late = std::is_sorted_until(order.begin(), order.end()); late != order.end())
    out_.warnings.push_back(locate(nodes[*late], file_, scope.prefix).str() +
                            ": stands behind a node that reads its result; nodes are sorted");
  const std::unordered_set<std::string_view> yielded = scope.read; // by the scope's outputs
  add_read_names(nodes, scope.read);
  for (size_t k = 0; k < order.size(); ++k) {
    const proto::NodeProto& node = nodes[order[k]];
    Status added = add_node(scope, node);
    if (added.ok()) continue;
    if (std::exchange(open_choice_, nullptr) == &node)
      return finish_in_branches(scope, nodes, std::span(order).subspan(k), yielded);
    TESSERA_TRY(refuse(scope, node, std::move(added).take_error()));
  }
  return {};
}

Status GraphBuilder::add_node(Scope& scope, const proto::NodeProto& node) {
  Location where = locate(node, file_, scope.prefix);
  if (node.op_type().empty()) return Diagnostic(ErrorCode::MalformedModel, where, "has no operator type");
  if (where.output.empty()) return Diagnostic(ErrorCode::MalformedModel, where, "defines no output");
  TESSERA_TRY(count(where));
  TESSERA_ASSIGN(BoundAttributes attributes, bind_attributes(node, scope, scope.function, where));
  if (const auto* function = functions_.find(node)) return inline_call(scope, node, *function, attributes, where);
  if (canonical_domain(node.domain()).empty()) {
    // Spellings of ONNX rather than operators: a literal, and a choice that is already made.
    if (node.op_type() == "Constant") {
      TESSERA_ASSIGN(Tensor value, constant_value(attributes, weights_, where));
      if (node.input_size() != 0 || node.output_size() != 1)
        return Diagnostic(ErrorCode::MalformedModel, where, "a constant takes nothing and yields one value");
      ValueId id =
          scope.into.graph.add_constant(std::move(value), scope.into.unique(name_of_result(scope, node.output(0))));
      return define(scope, node.output(0), id, where);
    }
    if (node.op_type() == "If") {
      TESSERA_ASSIGN(bool done, inline_branch(scope, node, attributes, where));
      if (done) return {};
      return add_branches(scope, node, attributes, where);
    }
    if (node.op_type() == "Loop" || node.op_type() == "Scan") return add_repeat(scope, node, attributes, where);
    if (node.op_type() == "SequenceMap") {
      TESSERA_ASSIGN(const BoundAttribute* body, graph_attribute(attributes, "body", scope, where));
      if (body->scope != &scope)
        return Diagnostic(ErrorCode::UnsupportedFeature, where, "the subgraph 'body' is given by a call of a function");
      TESSERA_ASSIGN(const std::vector<ValueId> operands, operands_of(scope, node, where));
      std::vector<bool> sequences(static_cast<size_t>(node.input_size()), false);
      for (size_t k = 0; k < operands.size(); ++k) {
        const auto& items = scope.into.graph.type(operands[k]).items;
        sequences[k] = items != nullptr && items->container == ItemType::Container::Sequence;
      }
      if (!sequences.empty() && !sequences[0])
        return Diagnostic(ErrorCode::TypeMismatch, where, "the first operand of SequenceMap is no sequence");
      TESSERA_ASSIGN(auto loop, sequence_map_as_loop(node, body->value->g(), sequences, where));
      for (proto::NodeProto& made : loop) TESSERA_TRY(add_node(scope, made_.emplace_back(std::move(made))));
      return {};
    }
  }
  if (node.domain() == kFlexAttention.domain && node.op_type() == kFlexAttention.op_type)
    return inline_flex_attention(scope, node, attributes, where);
  return add_operator(scope, node, attributes, std::move(where));
}

int GraphBuilder::opset_of(const Scope& scope, std::string_view domain) {
  if (auto version = scope.opsets->find(domain); version != scope.opsets->end())
    return static_cast<int>(version->second);
  // A version that is not stated: the newest of ONNX, the only one of anybody else.
  int64_t assumed = domain.empty() ? kNewestOpset : 1;
  if (not_imported_.emplace(domain).second) {
    std::string shown = domain.empty() ? "the default domain" : "domain '" + std::string(domain) + "'";
    out_.warnings.push_back(file_ + ": operators of " + shown + " are used, and no opset of it is imported; version " +
                            std::to_string(assumed) + " is assumed");
    out_.info.opsets.emplace(domain.empty() ? "ai.onnx" : domain, assumed);
  }
  return static_cast<int>(assumed);
}

Result<const OpDef*> GraphBuilder::find_operator(std::string_view op_type, std::string_view domain, int opset,
                                                 const Location& where) {
  bool known_elsewhere = false;
  const OpDef* op = OpTable::get().find_onnx(op_type, domain, opset, &known_elsewhere);
  if (op != nullptr) return op;
  Diagnostic d(ErrorCode::UnsupportedOp, where,
               "operator '" + full_op_name(domain, op_type) + "' of opset " + std::to_string(opset) +
                   " is not supported");
  std::vector<std::string> others; // of the domain
  for (const auto& def : OpTable::get().all())
    for (const OnnxName& n : def->onnx)
      if (n.domain == domain) others.emplace_back(n.op_type);
  const std::string close = known_elsewhere ? "" : similar(std::string(op_type), others);
  if (known_elsewhere)
    d.note("it is supported in another opset version");
  else if (!close.empty())
    d.note("did you mean '" + close + "'?");
  else if (!domain.empty() && others.empty())
    d.note("no operator of domain '" + std::string(domain) + "' is known, and the model has no function of that name");
  return d;
}

void GraphBuilder::warn_of_initializers(const Scope& scope) {
  const auto& model = *parsed_.model;
  // Counts names and shows the first ones.
  struct Listed {
    int count = 0;
    std::string names = {};
    void add(const std::string& name) {
      if (++count <= 3) names += (count > 1 ? ", '" : "'") + name + "'";
    }
    [[nodiscard]] std::string str() const { return names + (count > 3 ? " ..." : ""); }
  } unused, inputs;
  std::unordered_set<std::string_view> weights;
  auto see = [&](const std::string& name) {
    if (!name.empty() && weights.insert(name).second && !scope.read.contains(name)) unused.add(name);
  };
  for (const auto& t : model.graph().initializer()) see(t.name());
  for (const auto& t : model.graph().sparse_initializer()) see(t.values().name());
  if (model.ir_version() > kLastIrWithWeightsAsInputs)
    for (const auto& v : model.graph().input())
      if (weights.contains(v.name())) inputs.add(v.name());
  if (unused.count > 0)
    out_.warnings.push_back(file_ + ": " + std::to_string(unused.count) +
                            " initializers are read by nothing: " + unused.str());
  if (inputs.count > 0)
    out_.warnings.push_back(file_ + ": " + std::to_string(inputs.count) +
                            " inputs have an initializer and cannot be given: " + inputs.str());
}

Status GraphBuilder::add_operator(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                                  Location where) {
  std::string_view domain = canonical_domain(node.domain());
  int opset = opset_of(scope, domain);
  const bool old_form = domain.empty() && has_old_form(node.op_type(), opset);
  const OpDef* op = OpTable::get().find_onnx(node.op_type(), domain, opset);
  if (!old_form) {
    TESSERA_ASSIGN(op, find_operator(node.op_type(), domain, opset, where));
  }
  int results = node.output_size();
  while (node.output(results - 1).empty()) --results; // add_node() has seen one that is not
  TESSERA_ASSIGN(std::vector<ValueId> operands, operands_of(scope, node, where));
  std::vector<ValueId> captured;
  TESSERA_ASSIGN(Attributes values, operator_attributes(op, old_form, node, attributes, scope, captured, where));
  if (old_form) {
    OperatorForm form{node.op_type(), opset, std::move(operands), std::move(values), where, results};
    form.is_read = [&](int i) { return scope.read.contains(node.output(i)); };
    TESSERA_TRY(upgrade(scope.into.graph, form, out_.warnings));
    if (form.value) return define(scope, node.output(0), *form.value, where);
    opset = form.opset, results = form.results, operands = std::move(form.operands),
    values = std::move(form.attributes);
    TESSERA_ASSIGN(op, find_operator(form.op_type, domain, opset, where));
  }
  operands.insert(operands.end(), captured.begin(), captured.end());

  std::vector<std::string> names;
  for (int i = 0; i < results; ++i)
    names.push_back(node.output(i).empty() ? "" : scope.into.unique(name_of_result(scope, node.output(i))));
  TESSERA_ASSIGN(NodeId id, scope.into.graph.add_node(*op, std::move(operands), std::move(values), where,
                                                      std::move(names), opset));
  for (int i = 0; i < results; ++i) {
    if (node.output(i).empty()) continue;
    TESSERA_TRY(define(scope, node.output(i), scope.into.graph.node(id).results[static_cast<size_t>(i)], where));
  }
  return {};
}

Result<Attributes> GraphBuilder::operator_attributes(const OpDef* op, bool old_form, const proto::NodeProto& node,
                                                     const BoundAttributes& attributes, const Scope& scope,
                                                     std::vector<ValueId>& captured, const Location& where) {
  Attributes out;
  std::map<std::string_view, std::vector<ValueId>> captured_by; // by name of the attribute
  for (const auto& [name, bound] : attributes) {
    const AttrDef* def = nullptr;
    if (op != nullptr)
      for (const AttrDef& d : op->attributes)
        if (d.name == name) def = &d;
    if (def == nullptr && old_form) {
      TESSERA_ASSIGN(auto value, attribute_as_written(*bound.value, weights_, where));
      out.set(name, std::move(value));
      continue;
    }
    if (def == nullptr) {
      std::string known;
      for (const auto& d : op->attributes) known += (known.empty() ? "" : ", ") + std::string(d.name);
      return Diagnostic(ErrorCode::BadAttribute, where,
                        "operator '" + node.op_type() + "' has no attribute '" + std::string(name) + "'")
          .note(known.empty() ? "it has no attributes" : "it has " + known);
    }
    if (def->kind != AttrKind::Graph) {
      auto value = convert_attribute(*bound.value, def->kind, weights_, where);
      if (!value.ok() && old_form) { // of another type then
        TESSERA_ASSIGN(auto written, attribute_as_written(*bound.value, weights_, where));
        out.set(name, std::move(written));
        continue;
      }
      if (!value.ok()) return std::move(value).take_error();
      if (*value) out.set(name, std::move(**value));
      continue;
    }
    if (bound.value->type() != proto::AttributeProto::GRAPH) return wrong_attribute_type(*bound.value, "GRAPH", where);
    if (&bound.scope->into != &scope.into)
      return Diagnostic(ErrorCode::UnsupportedFeature, where,
                        "subgraph '" + std::string(name) +
                            "' is given by a call outside of the subgraph that the node is in");
    TESSERA_ASSIGN(auto graph, subgraph(*bound.scope, scope.into.graph.shared_env(), bound.value->g(),
                                        body_prefix(where), {}, false, captured_by[name], where));
    out.set(name, std::move(graph));
  }
  Ints counts;
  for (const auto& [name, values] : captured_by) {
    counts.push_back(static_cast<int64_t>(values.size()));
    captured.insert(captured.end(), values.begin(), values.end());
  }
  bool has_captures = op != nullptr && std::any_of(op->attributes.begin(), op->attributes.end(),
                                                   [](const AttrDef& d) { return d.name == "captures"; });
  if (has_captures)
    out.set("captures", std::move(counts));
  else if (!captured.empty())
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      "a subgraph of operator '" + node.op_type() + "' reads values of the graph around it");
  return out;
}

Result<std::vector<ValueId>> GraphBuilder::operands_of(const Scope& scope, const proto::NodeProto& node,
                                                       const Location& where) {
  std::vector<ValueId> out;
  for (const auto& input : node.input()) {
    if (input.empty()) {
      out.push_back({});
      continue;
    }
    TESSERA_ASSIGN(ValueId id, lookup(scope, input, where));
    out.push_back(id);
  }
  while (!out.empty() && !out.back().valid()) out.pop_back();
  return out;
}

Status GraphBuilder::define(Scope& scope, const std::string& name, ValueId value, const Location& where) {
  if (!scope.values.emplace(name, value).second)
    return Diagnostic(ErrorCode::MalformedModel, where,
                      "defines '" + name + "', which is an input or initializer already");
  // Bodies declare nothing that their inference could not find out: their inputs have the types of what they are given.
  if (auto it = scope.declared.find(name); it != scope.declared.end() && value.valid())
    TESSERA_TRY(dimensions_.meet(scope.into.graph.value(value).type, *it->second, where, out_.warnings));
  return {};
}

std::string GraphBuilder::name_of_result(const Scope& scope, const std::string& name) const {
  auto it = scope.result_names.find(name);
  return it != scope.result_names.end() ? it->second : scope.prefix + name;
}

// Reads what inputs of few integers hold, yields outputs as they are declared, and assumes what never is.
Status GraphBuilder::build_undetermined(Scope& scope) {
  Graph& graph = out_.graph;
  std::vector<ValueId> read;
  SymExpr sum = 0;
  for (ValueId input : graph.inputs()) {
    const Value& v = graph.value(input);
    if (const auto rank = graph.env().find(rank_symbol(v.name))) {
      sum += *rank;
      continue;
    }
    auto count = v.type.count().as_const();
    if (!(is_integer(v.type.dtype) || v.type.dtype == DType::Bool) || !count || *count > kContentsLimit) continue;
    std::vector<SymExpr> symbols;
    for (const std::string& name : read_symbols(v.name, *count))
      symbols.push_back(graph.env().create_symbol(name, {-kReadMax, kReadMax}));
    for (const SymExpr& s : symbols) sum += s;
    TESSERA_ASSIGN(ValueId contents, graph.read(input, symbols, model_location()));
    read.push_back(contents);
  }
  graph.env().add_guard({sym_and(sym_lt(sum, 0), sym_lt(0, sum)), GuardClass::Assumed,
                         "the values of its inputs decide the model's structure", model_location()});
  for (const auto& v : parsed_.model->graph().output()) {
    TensorType type; // of an output without a shape: a scalar, as good as any until a call decides
    if (v.type().tensor_type().has_shape()) {
      TESSERA_ASSIGN(type, dimensions_.input_type(v, false, model_location()));
    } else {
      TESSERA_ASSIGN(type.dtype,
                     element_type(v.type().tensor_type().elem_type(), model_location(), "output '" + v.name() + "'"));
      (void)graph.env().named_symbol(rank_symbol(v.name()), {0, kMaxRank});
    }
    TESSERA_ASSIGN(NodeId node, graph.add_node(*OpTable::get().find("undetermined"), read,
                                               {{"dtype", type.dtype}, {"shape", type.shape}}, model_location(),
                                               {scope.into.unique(v.name())}));
    graph.add_output(v.name(), graph.node(node).results[0]);
  }
  return {};
}

Status GraphBuilder::build_outputs(const Scope& scope) {
  const auto& graph = parsed_.model->graph();
  if (graph.output_size() == 0)
    return Diagnostic(ErrorCode::MalformedModel, model_location(), "the graph has no outputs");
  std::unordered_set<std::string_view> seen;
  for (const auto& v : graph.output()) {
    if (!seen.insert(v.name()).second)
      return Diagnostic(ErrorCode::MalformedModel, model_location(), "two outputs are called '" + v.name() + "'");
    if (scope.is_unknown(v.name())) continue;
    const ValueId* id = find_value(scope, v.name());
    if (id == nullptr || !id->valid())
      return Diagnostic(ErrorCode::MalformedModel, model_location(),
                        "output '" + v.name() + "' is not defined by any node");
    Location where = model_location();
    if (const Node* producer = out_.graph.producer(*id)) where = producer->location;
    TESSERA_TRY(dimensions_.meet(out_.graph.value(*id).type, v, where, out_.warnings));
    out_.graph.add_output(v.name(), *id);
    if (open_outputs_.contains(v.name())) (void)out_.graph.env().named_symbol(rank_symbol(v.name()), {0, kMaxRank});
  }
  return {};
}

} // namespace tessera::onnx
