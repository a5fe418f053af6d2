#include "fusion/rewrite.h"
#include <algorithm>

namespace tessera::fusion {

std::vector<bool> reachable(const ScalarDag& dag, std::span<const ScalarId> roots) {
  std::vector<bool> need(static_cast<size_t>(dag.size()));
  for (ScalarId r : roots) need[static_cast<size_t>(r)] = true;
  for (ScalarId id = dag.size() - 1; id >= 0; --id) // arguments precede their users
    if (need[static_cast<size_t>(id)])
      for (ScalarId a : dag[id].args) need[static_cast<size_t>(a)] = true;
  return need;
}

std::vector<ScalarId> copy_dag(const ScalarDag& from, std::span<const ScalarId> roots, ScalarDag& into,
                               const Substitution& axes, const ShapeEnv& env, const LoadRewrite& load) {
  std::vector<bool> need = reachable(from, roots);
  std::vector<ScalarId> to(static_cast<size_t>(from.size()), -1);
  std::vector<ScalarId> args;
  for (ScalarId id = 0; id < from.size(); ++id) {
    if (!need[static_cast<size_t>(id)]) continue;
    const ScalarNode& node = from[id];
    args.clear();
    for (ScalarId a : node.args) args.push_back(to[static_cast<size_t>(a)]);
    ScalarId& out = to[static_cast<size_t>(id)];
    if (node.op == ScalarOp::Index) {
      SymExpr e = rewrite(node.sym, axes, env);
      out = node.dtype == DType::Bool ? into.condition(e) : into.index(e);
      continue;
    }
    if (node.op == ScalarOp::Load && load) out = load(into, node, id, args);
    if (out >= 0) continue;
    ScalarNode copy = node;
    copy.args = args;
    if (copy.op == ScalarOp::CheckBounds) copy.sym = rewrite(copy.sym, axes, env);
    out = into.add(std::move(copy));
  }
  return to;
}

namespace {

struct DataIndex {
  ScalarDag& dag;
  const std::unordered_map<uint64_t, ScalarId>& data;
  std::unordered_map<SymExpr, ScalarId> done;

  [[nodiscard]] bool has_data(const SymExpr& e) const {
    for (const auto& s : e.symbols())
      if (data.contains(s.symbol_id())) return true;
    return false;
  }
  ScalarId as(ScalarId id, DType dtype) {
    if (dag[id].dtype == dtype) return id;
    if (dtype == DType::Bool) return dag.op(ScalarOp::Ne, id, dag.constant_i(dag[id].dtype, 0));
    return dag.cast(id, dtype);
  }
  ScalarId number(const SymExpr& e) { return as(visit(e), DType::I64); }
  ScalarId truth(const SymExpr& e) { return as(visit(e), DType::Bool); }
  ScalarId fold(ScalarOp op, std::span<const SymExpr> args, bool logical) {
    ScalarId r = logical ? truth(args[0]) : number(args[0]);
    for (size_t i = 1; i < args.size(); ++i) r = dag.op(op, r, logical ? truth(args[i]) : number(args[i]));
    return r;
  }
  ScalarId visit(const SymExpr& e) {
    if (auto it = done.find(e); it != done.end()) return it->second;
    ScalarId r = make(e);
    done.emplace(e, r);
    return r;
  }
  ScalarId make(const SymExpr& e) {
    if (e.is_symbol()) {
      auto it = data.find(e.symbol_id());
      return it == data.end() ? dag.index(e) : it->second;
    }
    if (!has_data(e)) return dag.index(e);
    auto a = e.args();
    switch (e.op()) {
    case SymOp::Add: return fold(ScalarOp::Add, a, false);
    case SymOp::Mul: return fold(ScalarOp::Mul, a, false);
    case SymOp::Min: return fold(ScalarOp::Min, a, false);
    case SymOp::Max: return fold(ScalarOp::Max, a, false);
    case SymOp::And: return fold(ScalarOp::And, a, true);
    case SymOp::Or: return fold(ScalarOp::Or, a, true);
    case SymOp::Not: return dag.op(ScalarOp::Not, truth(a[0]));
    case SymOp::Eq: return fold(ScalarOp::Eq, a, false);
    case SymOp::Ne: return fold(ScalarOp::Ne, a, false);
    case SymOp::Lt: return fold(ScalarOp::Lt, a, false);
    case SymOp::Le: return fold(ScalarOp::Le, a, false);
    case SymOp::Mod: return dag.op(ScalarOp::Mod, number(a[0]), number(a[1]));
    case SymOp::FloorDiv: { // scalar division truncates: take the remainder off first
      ScalarId x = number(a[0]), y = number(a[1]);
      return dag.op(ScalarOp::Div, dag.op(ScalarOp::Sub, x, dag.op(ScalarOp::Mod, x, y)), y);
    }
    case SymOp::Select: return dag.op(ScalarOp::Select, truth(a[0]), number(a[1]), number(a[2]));
    case SymOp::Scaled: {
      ScalarId wide = dag.cast(number(a[0]), DType::F64);
      ScalarId scaled = dag.op(ScalarOp::Mul, wide, dag.constant_f(DType::F64, e.factor()));
      return dag.cast(dag.op(ScalarOp::Floor, scaled), DType::I64);
    }
    case SymOp::Const:
    case SymOp::Symbol: break;
    }
    TESSERA_UNREACHABLE("index_of_data: " + e.str());
  }
};

} // namespace

ScalarId index_of_data(ScalarDag& dag, const SymExpr& e, const std::unordered_map<uint64_t, ScalarId>& data,
                       bool condition) {
  DataIndex visitor{dag, data, {}};
  return condition ? visitor.truth(e) : visitor.number(e);
}

std::vector<ScalarId> store_roots(const LoopNest& nest) {
  std::vector<ScalarId> roots;
  for (const auto& store : nest.stores) {
    roots.push_back(store.scalar);
    roots.insert(roots.end(), store.index.begin(), store.index.end());
  }
  return roots;
}

void copy_inner(const std::vector<InnerValue>& from, std::span<const ScalarId> to, const Substitution& axes,
                const ShapeEnv& env, std::vector<InnerValue>& into) {
  into.reserve(into.size() + from.size());
  for (const InnerValue& old : from) {
    InnerValue copy{old.value, {}, rewrite(old.condition, axes, env), to[static_cast<size_t>(old.scalar)]};
    if (copy.scalar < 0) continue;
    for (const SymExpr& e : old.index) copy.index.push_back(rewrite(e, axes, env));
    into.push_back(std::move(copy));
  }
}

void remove_stores(LoopNest& nest, const std::function<bool(ValueId)>& stored, bool keep) {
  std::erase_if(nest.stores, [&](const Store& s) {
    if (stored(s.value)) return false;
    if (keep) {
      InnerValue inner{s.value, {}, 1, s.scalar};
      for (ScalarId i : s.index) inner.index.push_back(*nest.dag.as_sym(i));
      nest.inner.push_back(std::move(inner));
    }
    return true;
  });
}

int load_slot(LoopNest& nest, ValueId value) {
  auto it = std::find(nest.loads.begin(), nest.loads.end(), value);
  if (it != nest.loads.end()) return static_cast<int>(it - nest.loads.begin());
  nest.loads.push_back(value);
  return static_cast<int>(nest.loads.size()) - 1;
}

void reindex(LoopNest& nest, std::vector<Axis> axes, const Substitution& map, const ShapeEnv& env) {
  ScalarDag dag;
  auto to = copy_dag(nest.dag, store_roots(nest), dag, map, env, nullptr);
  for (auto& store : nest.stores) {
    store.scalar = to[static_cast<size_t>(store.scalar)];
    for (auto& i : store.index) i = to[static_cast<size_t>(i)];
  }
  std::vector<InnerValue> inner;
  copy_inner(nest.inner, to, map, env, inner);
  nest.inner = std::move(inner);
  nest.dag = std::move(dag);
  nest.axes = std::move(axes);
}

void drop_exact_roundings(LoopNest& nest, const Graph& graph, ValueId raw) {
  const auto size = static_cast<size_t>(nest.dag.size());
  std::vector<ScalarId> same(size); // of each node: itself, or what it is a rounding of without effect
  std::vector<DType> exact(size);   // a dtype narrower than the node's own that has its numbers, else its own
  bool dropped = false;
  for (ScalarId id = 0; id < nest.dag.size(); ++id) {
    const auto at = static_cast<size_t>(id);
    const ScalarNode& n = nest.dag[id];
    auto of = [&](size_t i) { return exact[static_cast<size_t>(n.args[i])]; };
    same[at] = id;
    exact[at] = n.dtype;
    if (n.op == ScalarOp::Load) {
      const ValueId value = nest.loads[static_cast<size_t>(n.operand)];
      if (value != raw) exact[at] = graph.type(value).dtype;
    } else if (n.op == ScalarOp::Cast) {
      const ScalarNode& narrow = nest.dag[n.args[0]];
      if (compute_dtype(narrow.dtype) == n.dtype) exact[at] = narrow.dtype;
      if (narrow.op != ScalarOp::Cast || exact[at] == n.dtype) continue;
      const ScalarId rounded = narrow.args[0];
      if (nest.dag[rounded].dtype != n.dtype || exact[static_cast<size_t>(rounded)] != exact[at]) continue;
      same[at] = same[static_cast<size_t>(rounded)];
      dropped = true;
    } else if (n.op == ScalarOp::Neg || n.op == ScalarOp::Abs) {
      exact[at] = of(0);
    } else if ((n.op == ScalarOp::Min || n.op == ScalarOp::Max) && of(0) == of(1)) {
      exact[at] = of(0);
    }
  }
  if (!dropped) return;
  // Only what is read goes into the new DAG; the narrow halves of what was dropped are not.
  std::vector<bool> need(size);
  for (ScalarId root : store_roots(nest)) need[static_cast<size_t>(same[static_cast<size_t>(root)])] = true;
  for (ScalarId id = nest.dag.size(); id-- > 0;)
    if (need[static_cast<size_t>(id)])
      for (ScalarId a : nest.dag[id].args) need[static_cast<size_t>(same[static_cast<size_t>(a)])] = true;
  ScalarDag dag;
  std::vector<ScalarId> to(size, -1);
  auto now = [&](ScalarId id) { return to[static_cast<size_t>(same[static_cast<size_t>(id)])]; };
  for (ScalarId id = 0; id < nest.dag.size(); ++id) {
    if (!need[static_cast<size_t>(id)]) continue;
    ScalarNode copy = nest.dag[id];
    for (ScalarId& a : copy.args) a = now(a);
    to[static_cast<size_t>(id)] = dag.add(std::move(copy));
  }
  for (auto& store : nest.stores) {
    store.scalar = now(store.scalar);
    for (auto& i : store.index) i = now(i);
  }
  for (InnerValue& inner : nest.inner) inner.scalar = now(inner.scalar);
  std::erase_if(nest.inner, [](const InnerValue& inner) { return inner.scalar < 0; });
  nest.dag = std::move(dag);
}

void split_axes(LoopNest& nest, AxisPool& pool) {
  const ShapeEnv& env = pool.env();
  for (int round = 0; round < 32;
       ++round) { // each split shrinks an axis; the bound is for divisors that never simplify away
    std::vector<SymExpr> indices;
    auto need = reachable(nest.dag, store_roots(nest));
    for (ScalarId id = 0; id < nest.dag.size(); ++id)
      if (need[static_cast<size_t>(id)] && nest.dag[id].op == ScalarOp::Index) indices.push_back(nest.dag[id].sym);
    auto split = find_split(indices, nest.axes, env);
    if (!split) return;
    std::unordered_set<uint64_t> taken;
    for (const auto& axis : nest.axes) taken.insert(axis.var.symbol_id());
    std::vector<Axis> axes;
    Substitution map;
    for (size_t i = 0; i < nest.axes.size(); ++i) {
      const Axis& axis = nest.axes[i];
      if (static_cast<int>(i) != split->axis) {
        axes.push_back(axis);
        continue;
      }
      SymExpr quotient = *exact_quotient(axis.extent, split->divisor, env);
      Axis outer{pool.fresh(quotient, taken), quotient, axis.role};
      taken.insert(outer.var.symbol_id());
      Axis inner{pool.fresh(split->divisor, taken), split->divisor, axis.role};
      map[axis.var.symbol_id()] = outer.var * split->divisor + inner.var;
      axes.push_back(outer);
      axes.push_back(inner);
    }
    reindex(nest, std::move(axes), map, env);
  }
}

} // namespace tessera::fusion
