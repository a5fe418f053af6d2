#include "codegen/driver/group_iterations.h"
#include "codegen/target/derived.h"
#include "graph/ops/control.h"
#include "graph/ops/formulas.h"
#include "graph/ops/questions.h"
#include "graph/ops/repeat.h"
#include "graph/passes/pass.h"
#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace tessera {
namespace {

using namespace ops;

std::optional<int64_t> bytes_of(const ShapeEnv& env, const TensorType& type) {
  const auto count = env.simplify(type.count()).as_const();
  return count ? std::optional<int64_t>(byte_size(type.dtype, *count)) : std::nullopt;
}

// Values that depend on constants only, of known sizes. Without recursion: chains of them are as long as a model likes.
class ConstantExpressions {
public:
  explicit ConstantExpressions(const Graph& graph)
      : graph_(graph), order_(graph.order()), known_(static_cast<size_t>(graph.value_count())) {
    for (NodeId id : order_) {
      const Node& n = graph.node(id);
      if (n.op->data_dependent_shape || n.op->side_effect) continue;
      if (!std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId o) { return !o.valid() || has(o); })) continue;
      for (ValueId v : n.results)
        if (v.valid()) known_[at(v)] = bytes_of(graph.env(), graph.type(v)).has_value();
    }
  }

  // Not of values that were appended later.
  [[nodiscard]] bool has(ValueId v) const { return at(v) < known_.size() && known_[at(v)]; }
  // The value in another graph.
  Result<ValueId> copy(ValueId v, Graph& to, std::unordered_map<ValueId, ValueId>& copied) const {
    std::vector<bool> needed(known_.size());
    needed[at(v)] = true;
    for (auto id = order_.rbegin(); id != order_.rend(); ++id) {
      const Node& n = graph_.node(*id);
      if (std::none_of(n.results.begin(), n.results.end(), [&](ValueId r) { return r.valid() && needed[at(r)]; }))
        continue;
      for (ValueId o : n.operands)
        if (o.valid()) needed[at(o)] = true;
    }
    for (NodeId id : order_) {
      const Node& n = graph_.node(id);
      if (std::none_of(n.results.begin(), n.results.end(),
                       [&](ValueId r) { return r.valid() && needed[at(r)] && !copied.contains(r); }))
        continue;
      std::vector<ValueId> operands;
      for (ValueId o : n.operands) operands.push_back(o.valid() ? copied.at(o) : ValueId{});
      TESSERA_ASSIGN(NodeId made, to.add_node(*n.op, std::move(operands), n.attributes, n.location,
                                              std::vector<std::string>(n.results.size()), n.opset));
      for (size_t r = 0; r < n.results.size(); ++r)
        if (n.results[r].valid()) copied.emplace(n.results[r], to.node(made).results[r]);
    }
    return copied.at(v);
  }

private:
  static size_t at(ValueId v) { return static_cast<size_t>(v.index); }

  const Graph& graph_;
  const std::vector<NodeId> order_;
  std::vector<bool> known_;
};

class Grouping {
public:
  Grouping(Graph& graph, NodeId id, ops::ControlForm form, const Target& device, ConstantExpressions& constants)
      : graph_(graph), node_(graph.node(id)), form_(std::move(form)), device_(device), constants_(constants),
        body_(*form_.bodies[0].graph), b_(graph, node_) {
    for (int k = 0; k < form_.bodies[0].captures; ++k) {
      const ValueId v = node_.operands[static_cast<size_t>(form_.bodies[0].first_capture + k)];
      sunk_.push_back(constants_.has(v));
      if (!sunk_.back()) captured_.push_back(v);
    }
    const auto add = [&](const std::vector<SymExpr>& symbols) {
      for (const SymExpr& s : symbols) given_.insert(s.symbol_id());
    };
    add(graph.env().symbols());
    for (ValueId v : body_.inputs())
      for (const SymExpr& size : body_.declared_shape(v)) add(size.symbols());
  }

  // The results of the node; none where nothing changes.
  Result<std::vector<ValueId>> run() {
    const auto first = node_.operands.begin();
    carried_.assign(first, first + form_.carried);
    scanned_.assign(first + form_.carried, first + form_.carried + form_.scanned);
    const SymExpr trips = graph_.env().simplify(b_.dim(scanned_[0], 0));
    const int64_t times = iterations(trips.as_const());
    if (times <= 1 && captured_.size() == sunk_.size()) return std::vector<ValueId>{};
    if (times <= 1) {
      TESSERA_ASSIGN(auto once, body(1));
      auto results = scan(std::move(once), carried_, scanned_);
      return b_.done(std::move(results));
    }
    const SymExpr groups = floordiv(trips, times), whole = groups * times, left = mod(trips, times);
    TESSERA_ASSIGN(auto grouped, body(times));
    std::vector<ValueId> main, rest; // of what is scanned
    for (size_t k = 0; k < scanned_.size(); ++k) {
      const bool reverse = form_.reverse_in[k];
      SymShape shape = b_.shape(scanned_[k]);
      shape[0] = times;
      shape.insert(shape.begin(), groups);
      main.push_back(reshape(b_, slice(b_, scanned_[k], 0, reverse ? left : SymExpr(0), whole), shape));
      rest.push_back(slice(b_, scanned_[k], 0, reverse ? SymExpr(0) : whole, left));
    }
    std::vector<ValueId> results = scan(std::move(grouped), carried_, std::move(main));
    if (!b_.ok()) return b_.failed();
    for (int k = 0; k < form_.stacked; ++k) {
      ValueId& v = results[static_cast<size_t>(form_.carried + k)];
      SymShape shape = b_.shape(v);
      shape.erase(shape.begin());
      shape[0] = whole;
      v = reshape(b_, v, shape);
    }
    if (left.is_const(0)) return b_.done(std::move(results));
    TESSERA_ASSIGN(auto once, body(1));
    std::vector<ValueId> state(results.begin(), results.begin() + form_.carried);
    std::vector<ValueId> end = scan(std::move(once), std::move(state), std::move(rest));
    for (int k = 0; k < form_.stacked && b_.ok(); ++k) {
      const auto r = static_cast<size_t>(form_.carried + k);
      std::vector<ValueId> parts = {results[r], end[r]};
      if (form_.reverse_out[static_cast<size_t>(k)]) std::swap(parts[0], parts[1]);
      end[r] = concat(b_, std::move(parts), 0);
    }
    return b_.done(std::move(end));
  }

private:
  // How long an iteration takes at least: its products and one kernel more, and what it reads of captured values.
  [[nodiscard]] double iteration_us() const {
    int64_t kernels = 1, bytes = 0;
    for (NodeId id : body_.order()) {
      const auto* structured = body_.node(id).op->structured();
      if (structured && structured->kind != Structured::Constant && structured->kind != Structured::Alias) ++kernels;
    }
    for (int k = 0; k < form_.bodies[0].captures; ++k) {
      const ValueId v = node_.operands[static_cast<size_t>(form_.bodies[0].first_capture + k)];
      bytes += bytes_of(graph_.env(), graph_.type(v)).value_or(0);
    }
    const double rate = bytes <= device_.l2_bytes ? device_.l2_bytes_per_us : device_.memory_bytes_per_us;
    return static_cast<double>(kernels) * least_step_us(device_) + static_cast<double>(bytes) / rate;
  }

  // Iterations of a group, of a number of trips where it is known.
  [[nodiscard]] int64_t iterations(std::optional<int64_t> trips) const {
    constexpr double kShare = 1.0 / 32; // of the time that a group takes: what starting it may add
    if (!can_inline(body_)) return 1;
    // The size of a slice that only an iteration computes: a group without iterations has none.
    for (size_t r = static_cast<size_t>(form_.carried); r < body_.outputs().size(); ++r)
      for (const SymExpr& size : body_.type(body_.outputs()[r].value).shape)
        if (!is_given(size)) return 1;
    const int64_t most = std::max<int64_t>(1, kUnrolledNodes / std::max(1, body_.node_count()));
    const double wanted = std::ceil(device_.iteration_us / (kShare * iteration_us()));
    const auto times = static_cast<int64_t>(std::clamp(wanted, 1.0, static_cast<double>(most)));
    if (!trips) return times;
    if (*trips <= times) return std::max<int64_t>(*trips, 1);
    // Up to twice as many, where that leaves fewer behind.
    int64_t best = times;
    for (int64_t t = times; t <= std::min(2 * times, most) && t <= *trips; ++t)
      if (*trips % t < *trips % best) best = t;
    return best;
  }

  // Whether an expression has no size but those that are given to the body, by its inputs or around it.
  [[nodiscard]] bool is_given(const SymExpr& e) const {
    const auto symbols = e.substitute(body_.env().substitutions()).symbols();
    return std::all_of(symbols.begin(), symbols.end(),
                       [&](const SymExpr& s) { return given_.contains(s.symbol_id()); });
  }

  // That of the body, with its guards. Sizes that a node of the body defines, as the count of a Range that is read, are
  // others in each iteration: what the node requires of them, it requires again where it is added.
  [[nodiscard]] std::shared_ptr<ShapeEnv> environment() const {
    auto env = std::make_shared<ShapeEnv>(body_.env().inner());
    if (&body_.env() == &graph_.env()) return env; // guards of the graph around it
    for (const Guard& guard : body_.env().guards())
      if (is_given(guard.condition)) env->add_guard(guard);
    return env;
  }

  // The body, of so many iterations; slices of them have a dimension more.
  Result<std::shared_ptr<Graph>> body(int64_t times) {
    auto out = std::make_shared<Graph>(body_.name(), environment());
    Node place;
    place.location = node_.location;
    B s(*out, place);
    Scan all;
    all.body = form_.bodies[0].graph;
    all.reverse_in = form_.reverse_in;
    all.reverse_out = form_.reverse_out;
    size_t next = 0;
    auto input = [&](bool sliced) {
      const ValueId v = body_.inputs()[next++];
      TensorType type = body_.type(v);
      type.shape = body_.declared_shape(v);
      if (sliced) type.shape.insert(type.shape.begin(), times);
      return out->add_input(body_.value(v).name, std::move(type));
    };
    for (int k = 0; k < form_.carried; ++k) all.carried.push_back(input(false));
    for (int k = 0; k < form_.scanned; ++k) all.scanned.push_back(input(times > 1));
    std::unordered_map<ValueId, ValueId> copied;
    for (size_t k = 0; k < sunk_.size(); ++k) {
      if (!sunk_[k]) {
        all.captured.push_back(input(false));
        continue;
      }
      const ValueId v = node_.operands[static_cast<size_t>(form_.bodies[0].first_capture) + k];
      TESSERA_ASSIGN(ValueId there, constants_.copy(v, *out, copied));
      all.captured.push_back(there);
      ++next;
    }
    std::vector<ValueId> results;
    if (times > 1) {
      results = unrolled(s, all, times);
    } else {
      std::vector<ValueId> arguments = all.carried;
      arguments.insert(arguments.end(), all.scanned.begin(), all.scanned.end());
      arguments.insert(arguments.end(), all.captured.begin(), all.captured.end());
      TESSERA_ASSIGN(results, inline_graph(body_, arguments, *out));
    }
    if (!s.ok()) return s.failed().error();
    for (size_t r = 0; r < results.size(); ++r) out->add_output(body_.outputs()[r].name, results[r]);
    return out;
  }

  std::vector<ValueId> scan(std::shared_ptr<Graph> body, std::vector<ValueId> carried, std::vector<ValueId> scanned) {
    std::vector<ValueId> operands = std::move(carried);
    operands.insert(operands.end(), scanned.begin(), scanned.end());
    operands.insert(operands.end(), captured_.begin(), captured_.end());
    Attributes attributes = node_.attributes;
    attributes.set("captures", Ints{static_cast<int64_t>(captured_.size())});
    attributes.set("body", std::move(body));
    return b_.ops("scan_graph", std::move(operands), std::move(attributes), form_.carried + form_.stacked);
  }

  Graph& graph_;
  const Node node_; // a copy: nodes are appended
  const ControlForm form_;
  const Target& device_;
  ConstantExpressions& constants_;
  const Graph& body_;
  B b_;
  std::unordered_set<uint64_t> given_; // sizes of the body's inputs and of the graph around it
  std::vector<bool> sunk_;             // by captured value
  std::vector<ValueId> captured_;      // the others
  std::vector<ValueId> carried_, scanned_;
};

// Whether every input of the body has the sizes of what it is given: none has sizes of its own.
bool fits_as_it_is(const Graph& graph, const Node& node, const ControlForm& form) {
  const Graph& body = *form.bodies[0].graph;
  for (size_t k = 0; k < node.operands.size(); ++k) {
    SymShape given = graph.type(node.operands[k]).shape;
    const auto index = static_cast<int>(k);
    if (index >= form.carried && index < form.carried + form.scanned) given.erase(given.begin());
    const SymShape& taken = body.declared_shape(body.inputs()[k]);
    for (size_t d = 0; d < taken.size(); ++d)
      if (!graph.env().known_equal(given[d], taken[d])) return false;
  }
  return true;
}

} // namespace

Result<bool> group_iterations(Graph& graph, const Target& device) {
  ConstantExpressions constants(graph);
  bool changed = false;
  for (NodeId id : graph.order()) {
    const Node node = graph.node(id);
    if (!is(node, Structured::Control)) continue;
    TESSERA_ASSIGN(ControlForm form, control_form(node));
    if (form.kind != ControlForm::Kind::Scan || !can_inline(*form.bodies[0].graph) || !fits_as_it_is(graph, node, form))
      continue;
    TESSERA_ASSIGN(auto results, Grouping(graph, id, std::move(form), device, constants).run());
    if (results.empty()) continue;
    for (size_t r = 0; r < node.results.size(); ++r) {
      if (!node.results[r].valid()) continue;
      graph.value(results[r]).name = std::exchange(graph.value(node.results[r]).name, {});
      graph.replace_all_uses(node.results[r], results[r]);
    }
    graph.remove_node(id);
    changed = true;
  }
  if (!changed) return false;
  TESSERA_TRY(find_graph_pass("dce")->run(graph, {}));
  return true;
}

} // namespace tessera
