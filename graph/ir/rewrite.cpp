// Whole-graph rewrites that every pass pipeline needs: compacting, simplifying shapes, cloning.
#include "graph/ir/graph.h"
#include "graph/ir/operator.h"
#include <unordered_map>

namespace tessera {

void Graph::compact() {
  std::vector<NodeId> sequence = order();
  std::vector<ValueId> renamed(values_.size());
  std::vector<Value> values;
  std::vector<Node> nodes;
  values.reserve(values_.size());
  nodes.reserve(sequence.size());
  auto move_value = [&](ValueId v) {
    renamed[static_cast<size_t>(v.index)] = ValueId{static_cast<int32_t>(values.size())};
    values.push_back(std::move(value(v)));
    return renamed[static_cast<size_t>(v.index)];
  };
  for (ValueId& v : inputs_) v = move_value(v);
  for (NodeId id : sequence) {
    Node n = std::move(node(id));
    for (ValueId& v : n.operands) {
      if (!v.valid()) continue;
      v = renamed[static_cast<size_t>(v.index)];
      TESSERA_CHECK(v.valid(), "compact: an operand of '" + n.location.node + "' (" + std::string(n.op->name) +
                                   ") has no live producer before it");
    }
    for (size_t r = 0; r < n.results.size(); ++r) {
      if (!n.results[r].valid()) continue;
      n.results[r] = move_value(n.results[r]);
      values.back().producer = NodeId{static_cast<int32_t>(nodes.size())};
      values.back().result = static_cast<int>(r);
    }
    nodes.push_back(std::move(n));
  }
  for (Output& o : outputs_) {
    o.value = renamed[static_cast<size_t>(o.value.index)];
    TESSERA_CHECK(o.value.valid(), "compact: output '" + o.name + "' has no live producer");
  }
  nodes_ = std::move(nodes);
  values_ = std::move(values);
}

namespace {

// Equal dimensions recur in nearly every shape: each distinct expression is simplified once.
class Simplifier {
public:
  explicit Simplifier(const ShapeEnv& env) : env_(env) {}
  void operator()(std::vector<SymExpr>& exprs) {
    for (SymExpr& e : exprs) {
      if (e.is_const()) continue;
      auto [it, fresh] = done_.try_emplace(e);
      if (fresh) it->second = env_.simplify(e);
      e = it->second;
    }
  }

private:
  const ShapeEnv& env_;
  std::unordered_map<SymExpr, SymExpr> done_;
};

} // namespace

void Graph::simplify_shapes() {
  Simplifier simplify(*env_);
  for (Value& v : values_) {
    const bool defines = !v.producer.valid() || node(v.producer).op->data_dependent_shape;
    SymShape stated = defines && !v.declared ? v.type.shape : SymShape();
    simplify(v.type.shape);
    if (defines && !v.declared && stated != v.type.shape) v.declared = std::move(stated);
    if (v.contents) simplify(*v.contents);
  }
  for (Node& n : nodes_) {
    if (n.removed) continue;
    for (const auto& [name, attribute] : n.attributes.items()) {
      if (auto* dims = std::get_if<SymShape>(&attribute)) {
        SymShape simpler = *dims;
        simplify(simpler);
        if (simpler != *dims) n.attributes.set(name, std::move(simpler)); // an existing name: items stay where they are
      } else if (auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute)) {
        (*subgraph)->simplify_shapes();
      }
    }
  }
}

Graph Graph::clone() const {
  Graph copy = *this;
  copy.set_env(std::make_shared<ShapeEnv>(*env_));
  return copy;
}

void Graph::set_env(std::shared_ptr<ShapeEnv> env) {
  const std::shared_ptr<ShapeEnv> before = std::exchange(env_, std::move(env));
  for (Node& n : nodes_) {
    for (const auto& [name, attribute] : n.attributes.items()) {
      auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (subgraph == nullptr) continue;
      auto copy = std::make_shared<Graph>(**subgraph);
      copy->set_env(copy->env_ == before ? env_ : std::make_shared<ShapeEnv>(*copy->env_));
      n.attributes.set(name, std::move(copy)); // an existing name: items stay where they are
    }
  }
}

} // namespace tessera
