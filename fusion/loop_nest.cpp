#include "fusion/loop_nest.h"
#include "fusion/expand.h"
#include <algorithm>

namespace tessera {

using namespace fusion;

LoopNest::LoopNest() = default;
LoopNest::LoopNest(const LoopNest&) = default;
LoopNest::LoopNest(LoopNest&&) noexcept = default;
LoopNest& LoopNest::operator=(const LoopNest&) = default;
LoopNest& LoopNest::operator=(LoopNest&&) noexcept = default;
LoopNest::~LoopNest() = default;

bool LoopNest::has_reduction() const {
  return std::any_of(axes.begin(), axes.end(), [](const Axis& a) { return a.role == AxisRole::Row; });
}

SymShape LoopNest::extents(AxisRole role) const {
  SymShape shape;
  for (const auto& axis : axes)
    if (axis.role == role) shape.push_back(axis.extent);
  return shape;
}

SymExpr LoopNest::points() const {
  SymExpr n = 1;
  for (const auto& axis : axes) n = n * axis.extent;
  return n;
}

Result<LoopNest> make_nest(Graph& graph, NodeId node, bool strict_rounding) {
  AxisPool pool(graph.env());
  NodeBodies bodies(graph, pool);
  Expander expander(
      graph, pool, bodies, [](ValueId) { return false; }, strict_rounding);
  LoopNest nest;
  for (ValueId result : graph.node(node).results) {
    if (!result.valid()) continue;
    TESSERA_ASSIGN(LoopNest one, expander.nest(result));
    if (nest.stores.empty()) {
      nest = std::move(one);
      continue;
    }
    // Results of one operator: in one nest when they are of one shape.
    bool same = nest.axes.size() == one.axes.size();
    for (size_t i = 0; same && i < nest.axes.size(); ++i) same = nest.axes[i].var == one.axes[i].var;
    if (!same)
      return Diagnostic(ErrorCode::UnsupportedFeature, graph.node(node).location,
                        "results of different shapes are not one nest");
    auto to = copy_dag(one.dag, store_roots(one), nest.dag, {}, graph.env(),
                       [&](ScalarDag& dag, const ScalarNode& load, ScalarId, std::span<const ScalarId> args) {
                         ScalarNode copy = load;
                         copy.args.assign(args.begin(), args.end());
                         copy.operand = load_slot(nest, one.loads[static_cast<size_t>(load.operand)]);
                         return dag.add(std::move(copy));
                       });
    Store store = one.stores[0];
    store.scalar = to[static_cast<size_t>(store.scalar)];
    for (auto& i : store.index) i = to[static_cast<size_t>(i)];
    nest.stores.push_back(std::move(store));
  }
  normalize(nest, graph.env());
  return nest;
}

std::vector<bool> row_varying(const LoopNest& nest) {
  std::vector<bool> varying(static_cast<size_t>(nest.dag.size()));
  std::vector<SymExpr> rows;
  for (const auto& axis : nest.axes)
    if (axis.role == AxisRole::Row) rows.push_back(axis.var);
  if (rows.empty()) return varying;
  for (ScalarId id = 0; id < nest.dag.size(); ++id) {
    const ScalarNode& node = nest.dag[id];
    bool v = false;
    if (node.op == ScalarOp::Index) {
      for (const auto& row : rows) v = v || node.sym.contains(row);
    } else if (node.op != ScalarOp::Reduce) {
      for (ScalarId a : node.args) v = v || varying[static_cast<size_t>(a)];
    }
    varying[static_cast<size_t>(id)] = v;
  }
  return varying;
}

void normalize(LoopNest& nest, const ShapeEnv& env) {
  Substitution gone; // axes of one point
  std::vector<Axis> axes;
  for (const auto& axis : nest.axes) {
    if (env.known_equal(axis.extent, 1) && axis.role == AxisRole::Outer)
      gone.emplace(axis.var.symbol_id(), SymExpr(0));
    else
      axes.push_back(axis);
  }
  std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.role < b.role; });
  // Decisions by axes of one point, as the condition of a select, may leave nodes that nothing reads any more, loads
  // among them: a second copy is without these.
  const auto unread = [&] {
    const auto need = reachable(nest.dag, store_roots(nest));
    return std::find(need.begin(), need.end(), false) != need.end();
  };
  do {
    ScalarDag dag;
    std::vector<ValueId> loads;
    auto to = copy_dag(nest.dag, store_roots(nest), dag, gone, env,
                       [&](ScalarDag& into, const ScalarNode& load, ScalarId, std::span<const ScalarId> args) {
                         ScalarNode copy = load;
                         copy.args.assign(args.begin(), args.end());
                         ValueId value = nest.loads[static_cast<size_t>(load.operand)];
                         auto it = std::find(loads.begin(), loads.end(), value);
                         copy.operand = static_cast<int32_t>(it - loads.begin());
                         if (it == loads.end()) loads.push_back(value);
                         return into.add(std::move(copy));
                       });
    for (auto& store : nest.stores) {
      store.scalar = to[static_cast<size_t>(store.scalar)];
      for (auto& i : store.index) i = to[static_cast<size_t>(i)];
    }
    std::vector<InnerValue> inner;
    copy_inner(nest.inner, to, gone, env, inner);
    nest.inner = std::move(inner);
    nest.dag = std::move(dag);
    nest.loads = std::move(loads);
  } while (unread());
  nest.axes = std::move(axes);
  auto varying = row_varying(nest);
  bool rows = nest.has_reduction();
  for (auto& store : nest.stores) {
    bool v = varying[static_cast<size_t>(store.scalar)];
    for (ScalarId i : store.index) v = v || varying[static_cast<size_t>(i)];
    store.per_row = rows && !v;
  }
}

namespace {

Diagnostic broken(const LoopNest& nest, const std::string& what) {
  return Diagnostic(ErrorCode::Internal, "nest " + nest.name + ": " + what);
}

Status check_index(const LoopNest& nest, ScalarId id, const ShapeEnv&) {
  if (id < 0 || id >= nest.dag.size()) return broken(nest, "an index is not a node");
  if (nest.dag[id].dtype != DType::I64) return broken(nest, "an index is not i64");
  return {};
}

} // namespace

Status verify(const Graph& graph, const LoopNest& nest) {
  bool row_seen = false;
  std::unordered_set<uint64_t> vars;
  for (const auto& axis : nest.axes) {
    if (!axis.var.is_symbol() || !vars.insert(axis.var.symbol_id()).second)
      return broken(nest, "axes are not distinct symbols");
    if (axis.role == AxisRole::Outer && row_seen) return broken(nest, "an outer axis follows a row axis");
    row_seen |= axis.role == AxisRole::Row;
  }
  for (const auto& axis : nest.axes)
    for (const auto& other : nest.axes)
      if (axis.extent.contains(other.var)) return broken(nest, "an extent depends on an axis");
  if (nest.stores.empty()) return broken(nest, "stores nothing");
  auto varying = row_varying(nest);
  auto need = reachable(nest.dag, store_roots(nest));
  for (ScalarId id = 0; id < nest.dag.size(); ++id) {
    if (!need[static_cast<size_t>(id)]) continue;
    const ScalarNode& node = nest.dag[id];
    for (ScalarId a : node.args)
      if (a < 0 || a >= id) return broken(nest, "%" + std::to_string(id) + " reads a later node");
    if (node.op == ScalarOp::Reduce && !row_seen) return broken(nest, "a reduction in a nest without row axes");
    if (node.op != ScalarOp::Load) {
      if (is_float(node.dtype) && node.op != ScalarOp::Cast && compute_dtype(node.dtype) != node.dtype)
        return broken(nest, "arithmetic in a storage dtype at %" + std::to_string(id));
      continue;
    }
    if (node.operand < 0 || node.operand >= static_cast<int>(nest.loads.size()))
      return broken(nest, "load of an operand that is not there");
    const TensorType& type = graph.type(nest.loads[static_cast<size_t>(node.operand)]);
    size_t rank = node.args.size() - (node.masked ? 1 : 0);
    if (static_cast<int>(rank) != type.rank()) return broken(nest, "load with another rank at %" + std::to_string(id));
    if (node.dtype != compute_dtype(type.dtype)) return broken(nest, "load of another dtype at %" + std::to_string(id));
    for (size_t d = 0; d < rank; ++d) TESSERA_TRY(check_index(nest, node.args[d], graph.env()));
    if (node.masked && nest.dag[node.args.back()].dtype != DType::Bool)
      return broken(nest, "a load's predicate is not bool");
  }
  std::unordered_set<int32_t> stored;
  for (const auto& store : nest.stores) {
    const TensorType& type = graph.type(store.value);
    if (!stored.insert(store.value.index).second) return broken(nest, "a value is stored twice");
    if (std::find(nest.loads.begin(), nest.loads.end(), store.value) != nest.loads.end()) {
      bool read = false;
      for (ScalarId id = 0; id < nest.dag.size(); ++id)
        read |= need[static_cast<size_t>(id)] && nest.dag[id].op == ScalarOp::Load &&
                nest.loads[static_cast<size_t>(nest.dag[id].operand)] == store.value;
      if (read) return broken(nest, "a stored value is loaded");
    }
    if (static_cast<int>(store.index.size()) != type.rank()) return broken(nest, "a store with another rank");
    if (nest.dag[store.scalar].dtype != compute_dtype(type.dtype)) return broken(nest, "a store of another dtype");
    bool v = varying[static_cast<size_t>(store.scalar)];
    for (ScalarId i : store.index) {
      TESSERA_TRY(check_index(nest, i, graph.env()));
      if (!nest.dag.as_sym(i)) return broken(nest, "a store at an index that is data");
      v = v || varying[static_cast<size_t>(i)];
    }
    if (store.per_row && v) return broken(nest, "a store once per outer point depends on row axes");
  }
  return {};
}

} // namespace tessera
