// torch.cond, while_loop, scan and map: their graphs become bodies of the graph's control operators (graph/ops/control.h).
//
//   cond(pred, then, else, operands)                  if: operands are captured by both
//   while_loop(test, body, carried, captured)         loop: the test is computed before it, and behind each iteration
//   scan(body, init, xs, captured), map_impl(body, xs, captured)   scan_graph
//
// Sizes among the operands need no value: symbols of the program mean the same in a body. One that a loop carries is an
// i64 there, which the body reads.
#include "graph/ops/control.h"
#include "frontend/fx/graph_builder.h"
#include "frontend/fx/inline.h"
#include "graph/ops/formulas.h"
#include <algorithm>

namespace tessera::fx {
namespace {

constexpr std::string_view kPrefix = "torch.ops.higher_order.";
constexpr std::string_view kCond = "cond", kWhile = "while_loop", kScan = "scan", kMap = "map_impl";

std::string_view control_name(const FxNode& node) {
  std::string_view target = node.target;
  return target.starts_with(kPrefix) ? target.substr(kPrefix.size()) : std::string_view();
}

// The parts of a call: how many graphs come first, behind a condition where there is one, and how many lists of values.
struct Form {
  bool condition;
  size_t graphs, lists;
};
std::optional<Form> form_of(std::string_view name) {
  if (name == kCond) return Form{true, 2, 1};
  if (name == kWhile) return Form{false, 2, 2};
  if (name == kScan) return Form{false, 1, 3};
  if (name == kMap) return Form{false, 1, 2};
  return {};
}

// A body while it is being built: values from around it that it takes, as its inputs.
struct Body {
  Body(const Graph& around, const std::string& name)
      : env(std::make_shared<ShapeEnv>(around.env().inner())), model{Graph(name, env), {}, {}, {}} {}
  std::shared_ptr<ShapeEnv> env;
  ImportedModel model;
  std::vector<Item> given; // what its region is given
  std::vector<ValueId> captured;

  // Values go in as inputs, sizes as they are.
  void capture(const Graph& around, const std::vector<Item>& items) {
    for (const Item& item : items) {
      const ValueId* value = std::get_if<ValueId>(&item);
      const auto* number = std::get_if<SymbolicNumber>(&item);
      if (number != nullptr) value = &number->value;
      if (value == nullptr) {
        given.push_back(item);
        continue;
      }
      captured.push_back(*value);
      const ValueId inside =
          model.graph.add_input("captured" + std::to_string(captured.size() - 1), around.type(*value));
      given.push_back(number != nullptr ? Item(SymbolicNumber{inside}) : Item(inside));
    }
  }
  void add_outputs(const std::vector<ValueId>& values) {
    for (ValueId v : values) model.graph.add_output("r" + std::to_string(model.graph.outputs().size()), v);
  }
  std::shared_ptr<Graph> graph() { return std::make_shared<Graph>(std::move(model.graph)); }
};

} // namespace

bool is_control(const FxNode& node) { return form_of(control_name(node)).has_value(); }

Result<std::vector<ValueId>> GraphBuilder::run_region(const FxGraph& region, const std::vector<Item>& inputs,
                                                      ImportedModel& into, const Location& where) {
  if (inputs.size() != region.inputs.size())
    return Diagnostic(ErrorCode::MalformedModel, where,
                      "gives " + std::to_string(inputs.size()) + " values to a graph that takes " +
                          std::to_string(region.inputs.size()));
  Program program;
  program.graph = region;
  program.ranges = program_.ranges;
  TESSERA_TRY(inline_regions(program, file_));
  GraphBuilder inner(program, options_, weights_, file_, false, into);
  inner.symbols_.share(symbols_);
  const bool same_graph = &into == &out_;
  if (same_graph) inner.names_ = names_;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Argument& a = program.graph.inputs[i];
    if (a.name.empty()) continue; // a constant, which the region's nodes have as an argument
    if (const auto* value = std::get_if<ValueId>(&inputs[i])) {
      if (auto it = program.graph.sym_ints.find(a.name); it != program.graph.sym_ints.end()) { // carried by a loop
        Node place;
        place.location = where;
        ops::B b(into.graph, place);
        const auto read = b.read(*value);
        if (!b.ok()) return b.failed();
        inner.symbols_.bind(it->second.value, read.at(0));
        inner.items_[a.name] = read.at(0);
        continue;
      }
      TESSERA_TRY(inner.define_tensor(a.name, *value, where));
    } else {
      inner.items_[a.name] = inputs[i];
    }
  }
  TESSERA_TRY(inner.add_nodes(nullptr));
  for (const Argument& a : program.graph.inputs)
    if (inner.aliases_.is_written(a.name))
      return Diagnostic(ErrorCode::UnsupportedFeature, where, "writes to its operand '" + a.name + "' in place")
          .note("yield the new value as a result");
  std::vector<ValueId> results;
  for (const Argument& a : program.graph.outputs) {
    TESSERA_TRY(inner.refresh(a.name));
    Node place;
    place.location = where;
    ops::B b(into.graph, place);
    ValueId value;
    if (a.kind == Argument::Kind::Float) {
      value = b.scalar(DType::F64, a.number);
    } else {
      TESSERA_ASSIGN(const Item item, inner.item_of(a, where));
      if (const auto* v = std::get_if<ValueId>(&item)) value = *v;
      if (const auto* n = std::get_if<SymbolicNumber>(&item)) value = n->value;
      if (const auto* e = std::get_if<SymExpr>(&item)) {
        value = b.size(*e, DType::I64);
        if (a.kind == Argument::Kind::Bool || a.kind == Argument::Kind::SymBool) value = cast(b, value, DType::Bool);
      }
    }
    TESSERA_TRY(b.done(value));
    if (!value.valid())
      return Diagnostic(ErrorCode::UnsupportedFeature, where,
                        "yields " + std::string(name(a.kind)) + ", and results are tensors and numbers");
    if (admits(TypeSet::NumericOrBool, into.graph.type(value).dtype)) {
      TESSERA_ASSIGN(value, inner.under_assertions(value));
    }
    results.push_back(value);
  }
  if (same_graph) names_ = std::move(inner.names_);
  return results;
}

Status GraphBuilder::define_control_results(const FxNode& node, const std::vector<ValueId>& results,
                                            const Location& where) {
  std::vector<const Argument*> names;
  for (const Argument& a : node.outputs) {
    if (a.kind != Argument::Kind::List) names.push_back(&a);
    for (const Argument& item : a.items) names.push_back(&item);
  }
  if (names.size() > results.size())
    return Diagnostic(ErrorCode::MalformedModel, where,
                      "has " + std::to_string(names.size()) + " results, and its graph yields " +
                          std::to_string(results.size()));
  for (size_t i = 0; i < names.size(); ++i) {
    const Argument& a = *names[i];
    if (a.is_none() || a.name.empty()) continue;
    if (a.kind == Argument::Kind::Tensor) {
      TESSERA_TRY(define_tensor(a.name, results[i], where));
      continue;
    }
    if (a.kind == Argument::Kind::SymFloat) {
      items_[a.name] = SymbolicNumber{results[i]};
      continue;
    }
    if (a.kind != Argument::Kind::SymInt)
      return Diagnostic(ErrorCode::UnsupportedFeature, where, "has a result that is " + std::string(name(a.kind)));
    Node place;
    place.location = where;
    ops::B b(out_.graph, place);
    const auto read = b.read(results[i]);
    if (!b.ok()) return b.failed().error();
    if (auto it = program_.graph.sym_ints.find(a.name); it != program_.graph.sym_ints.end())
      symbols_.bind(it->second.value, read.at(0));
    items_[a.name] = read.at(0);
  }
  return {};
}

Status GraphBuilder::add_control(const FxNode& node, const Location& where) {
  const std::string_view kind = control_name(node);
  const Form form = *form_of(kind);
  TESSERA_TRY(refresh_arguments(node));
  // The arguments, by what they are.
  const size_t first = form.condition ? 1 : 0, count = first + form.graphs + form.lists;
  auto argument = [&](size_t i) -> const Argument* { return i < node.inputs.size() ? &node.inputs[i].value : nullptr; };
  std::vector<const FxGraph*> graphs;
  for (size_t i = first; i < first + form.graphs; ++i)
    if (const Argument* a = argument(i); a != nullptr && a->graph) graphs.push_back(a->graph.get());
  std::vector<std::vector<Item>> lists(form.lists);
  for (size_t i = first + form.graphs; i < std::min(count, node.inputs.size()); ++i) {
    const Argument& a = node.inputs[i].value;
    for (const Argument& one : a.items) {
      if (one.kind == Argument::Kind::Float) {
        Node place;
        place.location = where;
        ops::B b(out_.graph, place);
        const ValueId number = b.scalar(DType::F64, one.number);
        TESSERA_TRY(b.done(number));
        lists[i - first - form.graphs].emplace_back(SymbolicNumber{number});
        continue;
      }
      TESSERA_ASSIGN(Item item, item_of(one, where));
      lists[i - first - form.graphs].push_back(std::move(item));
    }
  }
  if (graphs.size() != form.graphs || node.inputs.size() > count)
    return Diagnostic(ErrorCode::MalformedModel, where,
                      "has " + std::to_string(node.inputs.size()) + " arguments, of which " +
                          std::to_string(graphs.size()) + " are graphs in their place; " + std::to_string(count) +
                          " and " + std::to_string(form.graphs) + " are expected");
  Node place;
  place.location = where;
  ops::B b(out_.graph, place);
  auto apply = [&](std::string_view op, std::vector<ValueId> operands, Attributes attributes,
                   size_t results) -> Status {
    auto values = b.done(b.ops(op, std::move(operands), std::move(attributes), static_cast<int>(results)));
    if (!values.ok()) return std::move(values).take_error().at(where);
    return define_control_results(node, *values, where);
  };
  auto build = [&](Body& body, const FxGraph& region) -> Result<std::vector<ValueId>> {
    return run_region(region, body.given, body.model, where);
  };

  if (kind == kCond) {
    TESSERA_ASSIGN(const Item condition, item_of(node.inputs[0].value, where));
    const auto* value = std::get_if<ValueId>(&condition);
    const auto* size = std::get_if<SymExpr>(&condition);
    if (value == nullptr && size == nullptr)
      return Diagnostic(ErrorCode::UnsupportedFeature, where, "has a condition that is neither a tensor nor a boolean");
    std::vector<ValueId> operands = {value != nullptr ? *value : cast(b, b.size(*size, DType::I64), DType::Bool)};
    Attributes attributes;
    Ints counts;
    size_t results = 0;
    for (const auto& [name, region] : {std::pair("else_branch", graphs[1]), std::pair("then_branch", graphs[0])}) {
      Body body(out_.graph, name);
      body.capture(out_.graph, lists[0]);
      TESSERA_ASSIGN(const std::vector<ValueId> values, build(body, *region));
      body.add_outputs(values);
      results = values.size();
      ops::assume_around(out_.graph, body.model.graph.env());
      counts.push_back(static_cast<int64_t>(body.captured.size()));
      operands.insert(operands.end(), body.captured.begin(), body.captured.end());
      attributes.set(name, body.graph());
    }
    attributes.set("captures", counts);
    return apply("if", std::move(operands), std::move(attributes), results);
  }

  // Carried values, and those that are scanned, are inputs of the body; sizes that are carried are values.
  const bool loop = kind == kWhile;
  std::vector<ValueId> operands;
  Body body(out_.graph, "body");
  if (loop) {
    operands = {ValueId{}, ValueId{}};
    body.model.graph.add_input("iteration", {DType::I64, {}});
    body.model.graph.add_input("condition", {DType::Bool, {}});
  }
  const size_t carried = kind == kMap ? 0 : lists[0].size();
  std::vector<Item> begin; // of the carried values
  for (size_t k = 0; k < carried; ++k) {
    const Item& item = lists[0][k];
    const auto* v = std::get_if<ValueId>(&item);
    const auto* n = std::get_if<SymbolicNumber>(&item);
    const auto* e = std::get_if<SymExpr>(&item);
    const ValueId value = v != nullptr   ? *v
                          : n != nullptr ? n->value
                          : e != nullptr ? b.size(*e, DType::I64)
                                         : ValueId{};
    if (!b.ok() || !value.valid())
      return Diagnostic(ErrorCode::UnsupportedFeature, where, "carries a value that is no tensor and no number");
    operands.push_back(value);
    begin.emplace_back(n != nullptr ? Item(SymbolicNumber{value}) : Item(value));
    const ValueId inside = body.model.graph.add_input("carried" + std::to_string(k), out_.graph.type(value));
    body.given.push_back(n != nullptr ? Item(SymbolicNumber{inside}) : Item(inside));
  }
  const std::vector<Item> none;
  const std::vector<Item>& scanned = loop ? none : lists[kind == kMap ? 0 : 1];
  for (size_t k = 0; k < scanned.size(); ++k) {
    const auto* v = std::get_if<ValueId>(&scanned[k]);
    if (v == nullptr || out_.graph.type(*v).shape.empty())
      return Diagnostic(ErrorCode::MalformedModel, where, "scans a value that has no dimension 0");
    operands.push_back(*v);
    TensorType slice = out_.graph.type(*v);
    slice.shape.erase(slice.shape.begin());
    body.given.emplace_back(body.model.graph.add_input("scanned" + std::to_string(k), std::move(slice)));
  }
  body.capture(out_.graph, lists.back());
  TESSERA_ASSIGN(std::vector<ValueId> values, build(body, *graphs.back()));
  const size_t results = values.size();
  if (loop) {
    auto test = [&](std::vector<Item> given, std::span<const Item> captured, ImportedModel& into) -> Result<ValueId> {
      given.insert(given.end(), captured.begin(), captured.end());
      TESSERA_ASSIGN(const std::vector<ValueId> yields, run_region(*graphs[0], given, into, where));
      if (yields.size() == 1) return yields[0];
      return Diagnostic(ErrorCode::MalformedModel, where,
                        "has a condition of " + std::to_string(yields.size()) + " values; one is expected");
    };
    TESSERA_ASSIGN(operands[1], test(begin, lists[1], out_));
    std::vector<Item> next;
    for (size_t k = 0; k < values.size(); ++k)
      next.emplace_back(k < begin.size() && std::holds_alternative<SymbolicNumber>(begin[k])
                            ? Item(SymbolicNumber{values[k]})
                            : Item(values[k]));
    TESSERA_ASSIGN(const ValueId goes_on, test(next, std::span(body.given).subspan(carried), body.model));
    body.add_outputs({goes_on});
  }
  body.add_outputs(values);
  ops::assume_around(out_.graph, body.model.graph.env());
  operands.insert(operands.end(), body.captured.begin(), body.captured.end());
  Attributes attributes;
  attributes.set("captures", Ints{static_cast<int64_t>(body.captured.size())});
  attributes.set("body", body.graph());
  if (!loop) attributes.set("num_scan_inputs", static_cast<int64_t>(scanned.size()));
  return apply(loop ? "loop" : "scan_graph", std::move(operands), std::move(attributes), results);
}

} // namespace tessera::fx
