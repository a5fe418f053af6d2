// If, Loop and Scan: bodies as graphs, and loops that are unrolled.
#include "graph/ops/control.h"
#include "frontend/onnx/graph_builder.h"
#include "graph/ops/formulas.h"
#include "graph/ops/repeat.h"
#include <algorithm>

namespace tessera::onnx {

namespace {

using ops::kUnrolledNodes;

// Nodes that run, those of bodies included.
int64_t nodes_of(const Graph& graph) {
  int64_t n = 0;
  for (int i = 0; i < graph.node_count(); ++i) {
    const Node& node = graph.node(NodeId{i});
    const auto* structured = node.op->structured();
    if (node.removed || (structured && structured->kind == Structured::Constant)) continue;
    ++n;
    for (const auto& [name, value] : node.attributes.items())
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&value)) n += nodes_of(**body);
  }
  return n;
}

// The one integer that a value is known to hold.
std::optional<int64_t> known_integer(const Graph& graph, ValueId v) {
  const auto& contents = graph.value(v).contents;
  if (!contents || contents->size() != 1) return std::nullopt;
  return graph.env().simplify(contents->front()).as_const();
}

// How many dimensions a scalar that a loop gives to its body has there: none, or one of size 1.
int scalar_rank(const proto::ValueInfoProto& input) {
  const auto& type = input.type().tensor_type();
  return type.has_shape() && type.shape().dim_size() == 1 ? 1 : 0;
}

Tensor scalar_tensor(DType dtype, int rank, int64_t value) {
  return Tensor::of<int64_t>(dtype, Dims(static_cast<size_t>(rank), 1), std::vector<int64_t>{value});
}

// A value that enters a body as an optional one, of this type, leaves it as one: outputs of the body from `first` on.
// Yields which of them have become optionals.
Result<std::vector<bool>> hold_optionals(Graph& body, size_t first, std::span<const TensorType> types,
                                         const Location& where) {
  auto optional = [](const TensorType& type) {
    return type.items != nullptr && type.items->container == ItemType::Container::Optional;
  };
  std::vector<bool> held(types.size(), false);
  for (size_t k = 0; k < types.size() && first + k < body.outputs().size(); ++k) {
    auto& output = body.outputs()[first + k];
    if (!optional(types[k]) || optional(body.type(output.value))) continue;
    TESSERA_ASSIGN(output.value, body.apply("Optional", {output.value}, {}, where));
    held[k] = true;
  }
  return held;
}

const BoundAttribute* find(const BoundAttributes& attributes, std::string_view name) {
  auto it = std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) { return a.first == name; });
  return it == attributes.end() ? nullptr : &it->second;
}
} // namespace

struct GraphBuilder::Repeat {
  bool loop = false;    // else a scan
  bool batched = false; // a Scan before opset 9: dimension 0 is a batch, each element is scanned by itself
  const BoundAttribute* body = nullptr;
  std::vector<ValueId> operands; // invalid where left out
  size_t before = 0;             // operands, and inputs of the body, before the carried values
  size_t carried = 0, scanned = 0;
  Ints in_axes, out_axes, in_reversed, out_reversed;
  // Dimensions that a carried value does not keep, by value.
  std::vector<std::vector<bool>> varies;
  // Carried values that are optional ones, of which the body yields what they hold: its graph makes an optional of that.
  std::vector<bool> held;
  std::shared_ptr<Graph> graph;
  std::vector<ValueId> captured;
};

// The types of the body's inputs; varying dimensions get a symbol of `env` each.
Result<std::vector<TensorType>> GraphBuilder::body_types(const Graph& outer, const Repeat& r, ShapeEnv& env,
                                                         const Location& where) {
  std::vector<TensorType> types;
  const auto& inputs = r.body->value->g().input();
  for (size_t k = 0; k < r.before; ++k)
    types.push_back({k == 0 ? DType::I64 : DType::Bool,
                     SymShape(static_cast<size_t>(scalar_rank(inputs[static_cast<int>(k)])), SymExpr(1))});
  for (size_t k = 0; k < r.carried + r.scanned; ++k) {
    const ValueId v = r.operands[r.before + k];
    if (!v.valid()) return Diagnostic(ErrorCode::MalformedModel, where, "leaves out a value that its body takes");
    TensorType type = outer.type(v);
    const std::string& name = inputs[static_cast<int>(r.before + k)].name();
    if (r.batched) {
      if (type.shape.empty())
        return Diagnostic(ErrorCode::ShapeMismatch, where, "'" + name + "' is given a scalar, which is no batch");
      type.shape.erase(type.shape.begin());
    }
    if (k < r.carried) {
      for (size_t d = 0; d < type.shape.size(); ++d)
        if (r.varies[k][d]) type.shape[d] = env.create_symbol(identifier(name) + "_d" + std::to_string(d));
    } else {
      int64_t axis = r.in_axes[k - r.carried];
      if (axis < 0) axis += type.rank();
      if (axis < 0 || axis >= type.rank())
        return Diagnostic(ErrorCode::BadAttribute, where,
                          "scans axis " + std::to_string(axis) + " of a tensor of rank " + std::to_string(type.rank()));
      type.shape.erase(type.shape.begin() + axis);
    }
    types.push_back(std::move(type));
  }
  return types;
}

// Builds the body. Carried values begin with the sizes of their operands; a dimension that the body does not keep gets a
// symbol of its own, until the sizes that go in are those that come out.
Status GraphBuilder::build_body(Scope& scope, Repeat& r, const Location& where) {
  const auto& proto = r.body->value->g();
  const std::string prefix = body_prefix(where);
  r.varies.assign(r.carried, {});
  for (size_t k = 0; k < r.carried; ++k)
    if (r.operands[r.before + k].valid())
      r.varies[k].resize(static_cast<size_t>(
          std::max(0, scope.into.graph.type(r.operands[r.before + k]).rank() - (r.batched ? 1 : 0))));
  std::optional<Diagnostic> first_error;
  // The types of the items of carried lists that begin empty: only the body gives them.
  std::vector<std::shared_ptr<const ItemType>> items(r.carried);
  for (;;) {
    auto env = std::make_shared<ShapeEnv>(scope.into.graph.env().inner());
    TESSERA_ASSIGN(auto types, body_types(scope.into.graph, r, *env, where));
    for (size_t k = 0; k < r.carried; ++k)
      if (items[k]) types[r.before + k].items = items[k];
    r.captured.clear();
    const auto nodes = out_.info.nodes;
    auto built = subgraph(*r.body->scope, env, proto, prefix, types, r.loop, r.captured, where);
    bool widened = false;
    if (!built.ok()) {
      // The first sizes may be special ones, as nothing is where something is appended: any size, then.
      if (first_error) return std::move(*first_error);
      first_error = built.error();
      for (auto& dims : r.varies)
        for (size_t d = 0; d < dims.size(); ++d) {
          widened = widened || !dims[d];
          dims[d] = true;
        }
      if (!widened) return std::move(*first_error);
      out_.info.nodes = nodes;
      continue;
    }
    r.graph = *built;
    const size_t first = r.loop ? 1 : 0;
    TESSERA_ASSIGN(r.held, hold_optionals(*r.graph, first, std::span(types).subspan(r.before, r.carried), where));
    for (size_t k = 0; k < r.carried && first + k < r.graph->outputs().size(); ++k) {
      const TensorType& yielded = r.graph->type(r.graph->outputs()[first + k].value);
      const TensorType& given = scope.into.graph.type(r.operands[r.before + k]);
      if (yielded.items && given.items && given.shape[0].is_const(0)) {
        auto all = items[k] ? join(*items[k], *yielded.items) : yielded.items;
        if (all && all->str() != types[r.before + k].items->str()) {
          items[k] = std::move(all);
          widened = true;
        }
      }
      const SymShape& out = yielded.shape;
      if (out.size() != r.varies[k].size()) continue; // the record says what is wrong
      for (size_t d = 0; d < out.size(); ++d)
        if (!r.varies[k][d] && !r.graph->env().known_equal(out[d], types[r.before + k].shape[d]))
          widened = r.varies[k][d] = true;
    }
    if (!widened) break;
    out_.info.nodes = nodes;
  }
  ops::assume_around(scope.into.graph, r.graph->env());
  return {};
}

Status GraphBuilder::add_branches(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                                  const Location& where) {
  TESSERA_ASSIGN(std::vector<ValueId> operands, operands_of(scope, node, where));
  const ValueId condition = operands.empty() ? ValueId{} : operands[0];
  if (condition.valid()) {
    Graph& graph = scope.into.graph;
    const SymExpr count = graph.type(condition).count();
    if (!graph.env().known_equal(count, 1)) { // a vector, of which calls give one element
      TESSERA_TRY(graph.env().require_equal(count, 1, "elements of the condition of an If", where));
      Node place;
      place.location = where;
      ops::B b(graph, place);
      operands[0] = ops::reshape(b, condition, {});
      if (!b.ok()) return b.failed().error();
    }
  }
  Attributes values;
  Ints counts;
  std::optional<Diagnostic> unsound; // of a branch whose sizes, types or axes do not fit each other
  std::string_view sound;
  for (std::string_view name : {"else_branch", "then_branch"}) { // in the order of names
    TESSERA_ASSIGN(const BoundAttribute* bound, graph_attribute(attributes, name, scope, where));
    std::vector<ValueId> captured;
    auto env = std::make_shared<ShapeEnv>(scope.into.graph.env().inner());
    auto built = subgraph(*bound->scope, env, bound->value->g(), body_prefix(where), {}, false, captured, where);
    if (!built.ok()) {
      if (open_choice_ != nullptr) open_choice_ = &node; // one inside, whose results this one yields
      if (open_choice_ != nullptr && decides(scope)) return decide_branch(scope, node, attributes, condition, where);
      // The branch cannot be built because of its assumptions about sizes: a call of other sizes gets another variant.
      ops::assume_around(scope.into.graph, *env);
      if (unsound || open_choice_ != nullptr || !is_misfit(built.error().code)) return std::move(built).take_error();
      unsound = built.error();
      continue;
    }
    sound = name;
    const std::shared_ptr<Graph>& graph = *built;
    ops::assume_around(scope.into.graph, graph->env());
    counts.push_back(static_cast<int64_t>(captured.size()));
    operands.insert(operands.end(), captured.begin(), captured.end());
    values.set(name, graph);
  }
  if (unsound && condition.valid()) { // the other one in the place of the node: a call that takes this one is an error
    const bool then = sound == "then_branch";
    Node place;
    place.location = where;
    ops::B b(scope.into.graph, place);
    const auto read = b.read(ops::reshape(b, ops::cast(b, condition, DType::I64), {}));
    if (!b.ok()) return *unsound;
    TESSERA_TRY(b.env().require(sym_eq(read[0], then ? 1 : 0), GuardClass::Required,
                                "the other branch is taken, which cannot be built (" + unsound->message + ")", where));
    out_.warnings.push_back(where.str() + ": only '" + std::string(sound) +
                            "' can be built; the other one, if it is taken, is an error: " + unsound->message);
    TESSERA_ASSIGN(const bool taken, inline_branch(scope, node, attributes, where, then ? 1 : 0));
    return taken ? Status() : Status(*unsound);
  }
  values.set("captures", std::move(counts));
  const auto& then_graph = **values.get<std::shared_ptr<Graph>>("then_branch");
  const auto& else_graph = **values.get<std::shared_ptr<Graph>>("else_branch");
  for (size_t k = 0; k < std::min(then_graph.outputs().size(), else_graph.outputs().size()); ++k) {
    const TensorType& a = then_graph.type(then_graph.outputs()[k].value);
    const TensorType& b = else_graph.type(else_graph.outputs()[k].value);
    if (a.rank() == b.rank() && (a.items == nullptr) == (b.items == nullptr)) continue;
    if (decides(scope)) return decide_branch(scope, node, attributes, condition, where);
    open_choice_ = &node;
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      "result " + std::to_string(k) + " is " + a.str() + " or " + b.str() +
                          ", depending on the condition, and is an output; one number of dimensions is expected");
  }
  return add_control_node(scope, node, "if", std::move(operands), std::move(values), where);
}

Status GraphBuilder::decide_branch(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                                   ValueId condition, const Location& where) {
  open_choice_ = nullptr;
  if (!condition.valid()) return Diagnostic(ErrorCode::MalformedModel, where, "has no condition");
  Node place;
  place.location = where;
  ops::B b(scope.into.graph, place);
  const ValueId flag = ops::reshape(b, ops::cast(b, condition, DType::I64), {});
  if (!b.ok()) return b.failed().error();
  ShapeEnv& env = scope.into.graph.env();
  SymExpr taken;
  if (const auto& contents = scope.into.graph.value(flag).contents) {
    taken = contents->front();
  } else {
    taken = env.create_symbol("condition of " + where.output, {0, 1});
    TESSERA_TRY(scope.into.graph.read(flag, std::span(&taken, 1), where));
  }
  const SymExpr holds = env.simplify(sym_eq(taken, 1));
  const bool known = env.prove(holds) || env.hint(holds);
  TESSERA_ASSIGN(const bool then, env.decide(holds, known || choices_.next(true), "which branch is taken", where));
  TESSERA_ASSIGN(const bool inlined, inline_branch(scope, node, attributes, where, then ? 1 : 0));
  if (inlined) return {};
  return Diagnostic(ErrorCode::MalformedModel, where, "its condition or its branches are not those of an If");
}

Status GraphBuilder::finish_in_branches(Scope& scope, const Nodes& nodes, std::span<const int> order,
                                        const std::unordered_set<std::string_view>& yielded) {
  const proto::NodeProto& choice = nodes[order[0]];
  std::unordered_set<std::string_view> dependent(choice.output().begin(), choice.output().end());
  dependent.erase("");
  std::vector<const proto::NodeProto*> moved;
  std::vector<std::string_view> results(choice.output().begin(), choice.output().end());
  for (int i : order.subspan(1)) {
    Nodes one;
    *one.Add() = nodes[i];
    std::unordered_set<std::string_view> read;
    add_read_names(one, read);
    if (std::none_of(read.begin(), read.end(), [&](std::string_view name) { return dependent.contains(name); })) {
      TESSERA_TRY(add_node(scope, nodes[i]));
      continue;
    }
    moved.push_back(&nodes[i]);
    for (const std::string& name : nodes[i].output()) {
      if (name.empty()) continue;
      dependent.insert(name);
      results.push_back(name);
    }
  }
  std::erase_if(results, [&](std::string_view name) { return !yielded.contains(name); });
  if (results.empty()) return {};
  proto::NodeProto& whole = made_.emplace_back(choice);
  whole.clear_output();
  for (std::string_view name : results) whole.add_output(std::string(name));
  for (auto& attribute : *whole.mutable_attribute()) {
    if (attribute.type() != proto::AttributeProto::GRAPH) continue;
    proto::GraphProto& branch = *attribute.mutable_g();
    for (int k = 0; k < std::min(choice.output_size(), branch.output_size()); ++k) {
      if (choice.output(k).empty() || choice.output(k) == branch.output(k).name()) continue;
      auto& same = *branch.add_node();
      same.set_op_type("Identity");
      same.add_input(branch.output(k).name());
      same.add_output(choice.output(k));
    }
    branch.clear_output();
    for (const auto* node : moved) *branch.add_node() = *node;
    for (std::string_view name : results) branch.add_output()->set_name(std::string(name));
  }
  Status added = add_node(scope, whole);
  const bool outermost = &scope.into.graph == &out_.graph && scope.outer == nullptr && calls_.empty();
  if (added.ok() || open_choice_ != &whole || !outermost) return added;
  open_choice_ = nullptr;
  open_outputs_.insert(whole.output().begin(), whole.output().end());
  calls_decide_ = true;
  added = add_node(scope, whole);
  calls_decide_ = false;
  return added;
}

Status GraphBuilder::add_repeat(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                                const Location& where) {
  Repeat r;
  r.loop = node.op_type() == "Loop";
  TESSERA_ASSIGN(r.body, graph_attribute(attributes, "body", scope, where));
  TESSERA_ASSIGN(r.operands, operands_of(scope, node, where));
  Attributes values;
  for (const auto& [name, bound] : attributes) {
    if (name == "body") continue;
    const bool number = name == "num_scan_inputs";
    TESSERA_ASSIGN(auto value,
                   convert_attribute(*bound.value, number ? AttrKind::Int : AttrKind::Ints, weights_, where));
    if (value) values.set(name, std::move(*value));
  }
  if (!r.loop) {
    auto version = scope.opsets->find(std::string_view());
    r.batched = version != scope.opsets->end() && version->second < 9;
  }
  if (r.batched) {
    if (!r.operands.empty() && r.operands[0].valid())
      return Diagnostic(ErrorCode::UnsupportedFeature, where,
                        "gives lengths of sequences to Scan of opset 8; leave them out, or write Scan of opset 9");
    if (!r.operands.empty()) r.operands.erase(r.operands.begin());
    if (auto* directions = values.get<Ints>("directions")) values.set("scan_input_directions", Ints(*directions));
    values.erase("directions");
  }
  r.before = r.loop ? 2 : 0;
  r.operands.resize(std::max(r.operands.size(), r.before));
  const size_t own = r.operands.size() - r.before;
  if (!r.loop) {
    const int64_t scanned = values.i("num_scan_inputs");
    if (scanned < 1 || scanned > static_cast<int64_t>(own))
      return Diagnostic(ErrorCode::BadAttribute, where,
                        "scans " + std::to_string(scanned) + " of " + std::to_string(own) + " inputs");
    r.scanned = static_cast<size_t>(scanned);
  }
  r.carried = own - r.scanned;
  const auto& proto = r.body->value->g();
  const size_t outputs = static_cast<size_t>(proto.output_size()), needed = (r.loop ? 1 : 0) + r.carried;
  if (static_cast<size_t>(proto.input_size()) != r.before + own || outputs < needed)
    return Diagnostic(ErrorCode::MalformedModel, where,
                      "subgraph 'body' has " + std::to_string(proto.input_size()) + " inputs and " +
                          std::to_string(outputs) + " outputs; " + std::to_string(r.before + own) + " and at least " +
                          std::to_string(needed) + " are expected");
  auto numbers = [&](std::string_view name, size_t count, Ints& out) -> Status {
    out = values.ints(name);
    if (!out.empty() && out.size() != count)
      return Diagnostic(ErrorCode::BadAttribute, where,
                        "attribute '" + std::string(name) + "' has " + std::to_string(out.size()) +
                            " numbers, expected " + std::to_string(count));
    out.resize(count);
    return {};
  };
  TESSERA_TRY(numbers("scan_input_axes", r.scanned, r.in_axes));
  TESSERA_TRY(numbers("scan_output_axes", outputs - needed, r.out_axes));
  TESSERA_TRY(numbers("scan_input_directions", r.scanned, r.in_reversed));
  TESSERA_TRY(numbers("scan_output_directions", outputs - needed, r.out_reversed));
  TESSERA_TRY(build_body(scope, r, where));
  if (auto trips = unrolled_trips(scope.into.graph, r)) return unroll(scope, node, r, *trips, where);
  std::vector<ValueId> operands = std::move(r.operands);
  operands.insert(operands.end(), r.captured.begin(), r.captured.end());
  values.set("captures", Ints{static_cast<int64_t>(r.captured.size())});
  values.set("body", std::move(r.graph));
  const std::string_view op = r.loop ? "loop" : r.batched ? "ScanOfBatch" : "Scan";
  if (std::find(r.held.begin(), r.held.end(), true) == r.held.end())
    return add_control_node(scope, node, op, std::move(operands), std::move(values), where);
  proto::NodeProto& held = made_.emplace_back(node);
  for (int k = 0; k < held.output_size(); ++k)
    if (static_cast<size_t>(k) < r.held.size() && r.held[static_cast<size_t>(k)] && !held.output(k).empty())
      held.set_output(k, held.output(k) + "/optional");
  TESSERA_TRY(add_control_node(scope, held, op, std::move(operands), std::move(values), where));
  for (int k = 0; k < held.output_size(); ++k) {
    if (held.output(k) == node.output(k)) continue;
    TESSERA_ASSIGN(const ValueId optional, lookup(scope, held.output(k), where));
    TESSERA_ASSIGN(const ValueId value, scope.into.graph.apply("OptionalGetElement", {optional}, {}, where));
    TESSERA_TRY(define(scope, node.output(k), value, where));
  }
  return {};
}

// The trip count of a loop that is unrolled.
std::optional<int64_t> GraphBuilder::unrolled_trips(const Graph& graph, const Repeat& r) const {
  std::optional<int64_t> trips;
  if (r.batched) return std::nullopt;
  if (r.loop) {
    const bool on = !r.operands[1].valid() || known_integer(graph, r.operands[1]) == 1;
    const ValueId goes_on = r.graph->outputs()[0].value;
    if (!r.operands[0].valid() || !on || known_integer(*r.graph, goes_on) != 1) return std::nullopt;
    trips = known_integer(graph, r.operands[0]);
  } else {
    const TensorType& type = graph.type(r.operands[r.carried]);
    const int64_t axis = r.in_axes[0] < 0 ? r.in_axes[0] + type.rank() : r.in_axes[0];
    trips = type.shape[static_cast<size_t>(axis)].as_const();
  }
  // Without an iteration there is no slice whose sizes stacked results could have.
  if (!trips || *trips < 1 || *trips > kUnrolledNodes) return std::nullopt;
  // The body counts as it is built, with functions and loops inside of it written out.
  const int64_t nodes = std::max({nodes_of(*r.graph), count_nodes(r.body->value->g().node()), int64_t{1}});
  return *trips * nodes <= kUnrolledNodes ? trips : std::nullopt;
}

// Iterations one behind the other, as nodes of the graph.
Status GraphBuilder::unroll(Scope& scope, const proto::NodeProto& node, const Repeat& r, int64_t trips,
                            const Location& where) {
  TESSERA_TRY(enter(where));
  Nesting nesting(nesting_);
  Graph& graph = scope.into.graph;
  const auto& proto = r.body->value->g();
  const size_t first = r.loop ? 1 : 0, stacked = r.out_axes.size();
  std::vector<ValueId> carried(r.operands.begin() + static_cast<std::ptrdiff_t>(r.before),
                               r.operands.begin() + static_cast<std::ptrdiff_t>(r.before + r.carried));
  std::vector<std::vector<ValueId>> slices(stacked);
  Node place;
  place.location = where;
  ops::B b(graph, place);
  for (int64_t i = 0; i < trips; ++i) {
    Scope body{scope.into, r.body->scope, r.body->scope->opsets, r.body->scope->function,
               body_prefix(where) + std::to_string(i) + "/"};
    auto name = [&](size_t k) -> const std::string& { return proto.input(static_cast<int>(k)).name(); };
    if (r.loop) {
      body.values.emplace(name(0), graph.add_constant(scalar_tensor(DType::I64, scalar_rank(proto.input(0)), i)));
      body.values.emplace(name(1), graph.add_constant(scalar_tensor(DType::Bool, scalar_rank(proto.input(1)), 1)));
    }
    for (size_t k = 0; k < r.carried; ++k) body.values.emplace(name(r.before + k), carried[k]);
    for (const auto& output : proto.output()) body.read.insert(output.name());
    for (size_t k = 0; k < r.scanned; ++k) {
      const ValueId whole = r.operands[r.carried + k];
      const int64_t axis = r.in_axes[k] < 0 ? r.in_axes[k] + b.rank(whole) : r.in_axes[k];
      const int64_t at = r.in_reversed[k] != 0 ? trips - 1 - i : i;
      body.values.emplace(name(r.carried + k), ops::squeeze(b, ops::slice(b, whole, axis, at, 1, 1), {axis}));
    }
    if (!b.ok()) return b.failed().error();
    TESSERA_TRY(add_initializers(body, proto, false));
    TESSERA_TRY(add_nodes(body, proto.node()));
    std::vector<ValueId> results;
    for (size_t k = first; k < first + r.carried + stacked; ++k) {
      TESSERA_ASSIGN(ValueId v, lookup(body, proto.output(static_cast<int>(k)).name(), where));
      if (!v.valid())
        return Diagnostic(ErrorCode::MalformedModel, where,
                          "subgraph output '" + proto.output(static_cast<int>(k)).name() + "' is left out");
      results.push_back(v);
    }
    carried.assign(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(r.carried));
    for (size_t k = 0; k < stacked; ++k) slices[k].push_back(results[r.carried + k]);
  }
  for (size_t k = 0; k < r.carried + stacked && k < static_cast<size_t>(node.output_size()); ++k) {
    const std::string& output = node.output(static_cast<int>(k));
    if (output.empty()) continue;
    ValueId v;
    if (k < r.carried) {
      v = carried[k];
    } else {
      auto& all = slices[k - r.carried];
      const int64_t rank = b.rank(all[0]) + 1;
      const int64_t given = r.out_axes[k - r.carried], axis = given < 0 ? given + rank : given;
      if (axis < 0 || axis >= rank)
        return Diagnostic(ErrorCode::BadAttribute, where,
                          "stacks along axis " + std::to_string(given) + " of a tensor of rank " +
                              std::to_string(rank));
      for (ValueId& slice : all) slice = ops::unsqueeze(b, slice, {axis});
      if (r.out_reversed[k - r.carried] != 0) std::reverse(all.begin(), all.end());
      v = ops::concat(b, all, axis);
      if (!b.ok()) return b.failed().error();
    }
    TESSERA_TRY(define(scope, output, v, where));
  }
  return {};
}

Result<const BoundAttribute*> GraphBuilder::graph_attribute(const BoundAttributes& attributes, std::string_view name,
                                                            const Scope& scope, const Location& where) {
  const BoundAttribute* bound = find(attributes, name);
  if (bound == nullptr)
    return Diagnostic(ErrorCode::BadAttribute, where, "attribute '" + std::string(name) + "' is missing");
  if (bound->value->type() != proto::AttributeProto::GRAPH) return wrong_attribute_type(*bound->value, "GRAPH", where);
  if (&bound->scope->into != &scope.into)
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      "subgraph '" + std::string(name) +
                          "' is given by a call outside of the subgraph that the node is in");
  return bound;
}

Status GraphBuilder::add_control_node(Scope& scope, const proto::NodeProto& node, std::string_view op,
                                      std::vector<ValueId> operands, Attributes values, const Location& where) {
  std::vector<std::string> names;
  int results = node.output_size();
  while (results > 0 && node.output(results - 1).empty()) --results;
  for (int i = 0; i < results; ++i)
    names.push_back(node.output(i).empty() ? "" : scope.into.unique(name_of_result(scope, node.output(i))));
  TESSERA_ASSIGN(NodeId id, scope.into.graph.add_node(*OpTable::get().find(op), std::move(operands), std::move(values),
                                                      where, std::move(names)));
  for (int i = 0; i < results; ++i)
    if (!node.output(i).empty())
      TESSERA_TRY(define(scope, node.output(i), scope.into.graph.node(id).results[static_cast<size_t>(i)], where));
  return {};
}

} // namespace tessera::onnx
