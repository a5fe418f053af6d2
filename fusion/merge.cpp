#include "fusion/merge.h"
#include <algorithm>
#include <numeric>

namespace tessera::fusion {

namespace {

std::optional<std::vector<SymExpr>> plain(const ScalarDag& dag, std::span<const ScalarId> index) {
  std::vector<SymExpr> out;
  for (ScalarId id : index) {
    auto e = dag.as_sym(id);
    if (!e) return std::nullopt;
    out.push_back(*e);
  }
  return out;
}

struct CrossLoad {
  const Store* store;
  std::vector<SymExpr> stored, loaded;
};

const Store* find_store(const LoopNest& nest, ValueId value) {
  for (const auto& s : nest.stores)
    if (s.value == value) return &s;
  return nullptr;
}

// Loads of the consumer that read what the producer stores.
std::optional<Refusal> cross_loads(const Graph& graph, const LoopNest& a, const LoopNest& b,
                                   std::vector<CrossLoad>& out) {
  auto need = reachable(b.dag, store_roots(b));
  for (ScalarId id = 0; id < b.dag.size(); ++id) {
    const ScalarNode& node = b.dag[id];
    if (!need[static_cast<size_t>(id)] || node.op != ScalarOp::Load) continue;
    ValueId value = b.loads[static_cast<size_t>(node.operand)];
    const Store* store = find_store(a, value);
    if (!store) continue;
    auto loaded = plain(b.dag, node.args);
    if (node.masked || !loaded)
      return Refusal{FusionReason::DifferentIterationSpace,
                     node.masked ? "read under a condition, at other indices than it is computed at"
                                 : "read at an index that is data"};
    out.push_back({store, *plain(a.dag, store->index), std::move(*loaded)});
  }
  (void)graph;
  return std::nullopt;
}

bool has_arg_reduction(const LoopNest& nest) {
  for (ScalarId id = 0; id < nest.dag.size(); ++id)
    if (nest.dag[id].op == ScalarOp::Reduce &&
        (nest.dag[id].reduce == ReduceKind::ArgMax || nest.dag[id].reduce == ReduceKind::ArgMin))
      return true;
  return false;
}

} // namespace

std::string axes_text(const LoopNest& nest) {
  std::string out = str(nest.extents(AxisRole::Outer));
  if (nest.has_reduction()) out += " by rows of " + str(nest.extents(AxisRole::Row));
  return out;
}

// Pairs what the index of the first cross load left open.
std::optional<Refusal> Merger::match_rows(AxisMatcher& matcher, const LoopNest& a, const LoopNest& b) const {
  std::vector<int> left_a, left_b;
  bool only_rows_a = true, all_rows_b = true;
  for (size_t i = 0; i < a.axes.size(); ++i)
    if (!matcher.used_a(static_cast<int>(i))) {
      left_a.push_back(static_cast<int>(i));
      only_rows_a = only_rows_a && a.axes[i].role == AxisRole::Row;
    }
  for (size_t i = 0; i < b.axes.size(); ++i) {
    bool used = matcher.used_b(static_cast<int>(i));
    if (!used) left_b.push_back(static_cast<int>(i));
    if (b.has_reduction()) all_rows_b = all_rows_b && used == (b.axes[i].role == AxisRole::Outer);
  }
  auto differ = [&](const std::string& what) {
    return Refusal{FusionReason::DifferentIterationSpace, what + ": " + axes_text(a) + " and " + axes_text(b)};
  };
  if (!only_rows_a) return differ("iteration spaces differ");
  if (left_b.empty()) {
    for (int i : left_a) matcher.keep_a(i); // the consumer runs once per outer point
    return std::nullopt;
  }
  if (b.has_reduction() && !all_rows_b)
    return Refusal{a.has_reduction() ? FusionReason::DifferentReduction : FusionReason::DifferentIterationSpace,
                   "what the consumer reduces over is not its rows here: " + axes_text(a) + " and " + axes_text(b)};
  if (left_a.empty()) {
    if (a.has_reduction()) return differ("the consumer repeats what the rows hold");
    if (!b.has_reduction()) return differ("the consumer has the larger iteration space");
    for (int i : left_b) matcher.keep_b(i); // the producer runs once per outer point
    return std::nullopt;
  }
  if (!matcher.pair(left_a, left_b)) return differ("the rows have different lengths");
  return std::nullopt;
}

std::optional<Refusal> Merger::assign_roles(Joint& joint, const LoopNest& a, const LoopNest& b) const {
  bool rows_a = a.has_reduction(), rows_b = b.has_reduction();
  auto role_of = [](const LoopNest& nest, int axis) { return nest.axes[static_cast<size_t>(axis)].role; };
  auto& atoms = joint.match.atoms;
  // In the order of whoever has rows, of the producer otherwise.
  bool by_b = rows_b && !rows_a;
  std::stable_sort(atoms.begin(), atoms.end(),
                   [&](const auto& x, const auto& y) { return by_b ? x.b < y.b : x.a < y.a; });
  for (const auto& atom : atoms) {
    AxisRole role = AxisRole::Outer;
    if (rows_a && atom.a >= 0) role = role_of(a, atom.a);
    if (rows_b && atom.b >= 0) {
      AxisRole other = role_of(b, atom.b);
      if (rows_a && atom.a >= 0 && other != role)
        return Refusal{FusionReason::DifferentReduction,
                       "reductions over different axes: " + axes_text(a) + " and " + axes_text(b)};
      role = other;
    }
    joint.axes.push_back({atom.var, atom.extent, role});
  }
  std::vector<size_t> order(atoms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t x, size_t y) { return joint.axes[x].role < joint.axes[y].role; });
  std::vector<Axis> axes;
  std::vector<AxisMatch::Atom> rows;
  for (size_t i : order) {
    axes.push_back(joint.axes[i]);
    if (joint.axes[i].role == AxisRole::Row) rows.push_back(atoms[i]);
  }
  joint.axes = std::move(axes);
  // The position that argmax yields counts along the rows, so their order is part of its meaning.
  auto in_order = [&](auto of) {
    return std::is_sorted(rows.begin(), rows.end(), [&](const auto& x, const auto& y) { return of(x) < of(y); });
  };
  if ((has_arg_reduction(a) && !in_order([](const auto& x) { return x.a; })) ||
      (has_arg_reduction(b) && !in_order([](const auto& x) { return x.b; })))
    return Refusal{FusionReason::DifferentReduction, "a position along the rows needs their order"};
  return std::nullopt;
}

void Merger::append(LoopNest& a, const LoopNest& b, Joint joint, bool keep_axes) {
  const ShapeEnv& env = pool_.env();
  Substitution map = joint.match.b;
  if (keep_axes && !joint.match.a_unchanged) {
    Substitution back; // atoms as parts of the producer's axes
    std::map<int, SymExpr> weight;
    for (auto it = joint.match.atoms.rbegin(); it != joint.match.atoms.rend(); ++it) {
      const Axis& axis = a.axes[static_cast<size_t>(it->a)];
      SymExpr w = weight.try_emplace(it->a, SymExpr(1)).first->second;
      SymExpr digit = floordiv(axis.var, w);
      weight[it->a] = w * it->extent;
      bool outermost = env.known_equal(weight[it->a], axis.extent);
      back[it->var.symbol_id()] = env.simplify(outermost ? digit : mod(digit, it->extent));
    }
    for (auto& [id, e] : map) e = env.simplify(e.substitute(back));
  } else if (!joint.match.a_unchanged) {
    reindex(a, joint.axes, joint.match.a, env);
  }
  if (!keep_axes) a.axes = joint.axes;
  auto to = copy_dag(b.dag, store_roots(b), a.dag, map, env,
                     [&](ScalarDag& dag, const ScalarNode& load, ScalarId, std::span<const ScalarId> args) {
                       ValueId value = b.loads[static_cast<size_t>(load.operand)];
                       if (const Store* store = find_store(a, value)) return store->scalar;
                       ScalarNode copy = load;
                       copy.args.assign(args.begin(), args.end());
                       copy.operand = load_slot(a, value);
                       return dag.add(std::move(copy));
                     });
  for (const auto& s : b.stores) {
    Store store = s;
    store.scalar = to[static_cast<size_t>(s.scalar)];
    for (auto& i : store.index) i = to[static_cast<size_t>(i)];
    a.stores.push_back(std::move(store));
  }
  copy_inner(b.inner, to, map, env, a.inner);
  for (NodeId n : b.sources)
    if (std::find(a.sources.begin(), a.sources.end(), n) == a.sources.end()) a.sources.push_back(n);
}

std::optional<Refusal> Merger::vertical(LoopNest& a, const LoopNest& b, bool keep_axes) {
  const ShapeEnv& env = pool_.env();
  std::vector<CrossLoad> loads;
  if (auto refusal = cross_loads(graph_, a, b, loads)) return refusal;
  if (loads.empty()) // since another merge, sizes decide a condition under which it was read
    return Refusal{FusionReason::NoGain, "sizes decide that nothing of it is read"};
  std::optional<Refusal> why;
  constexpr size_t kTries = 3; // loads of which each might give the pairing of the axes
  for (size_t t = 0; t < std::min(loads.size(), kTries); ++t) {
    const auto& first = loads[t];
    AxisMatcher matcher(pool_, a.axes, b.axes);
    const SymShape& shape = graph_.type(first.store->value).shape;
    bool paired = true;
    for (size_t d = 0; d < shape.size() && paired; ++d) {
      auto xs = radix_of(first.stored[d], a.axes, shape[d], env), ys = radix_of(first.loaded[d], b.axes, shape[d], env);
      paired = xs && ys && matcher.pair(*xs, *ys);
    }
    if (!paired) {
      why = Refusal{FusionReason::DifferentIterationSpace,
                    "read at other indices than it is computed at: " + axes_text(a) + " and " + axes_text(b)};
      continue;
    }
    if ((why = match_rows(matcher, a, b))) continue;
    Joint joint{matcher.take(), {}};
    if ((why = assign_roles(joint, a, b))) continue;
    bool same_points = std::all_of(loads.begin(), loads.end(), [&](const CrossLoad& load) {
      for (size_t d = 0; d < load.stored.size(); ++d)
        if (!env.known_equal(rewrite(load.stored[d], joint.match.a, env), rewrite(load.loaded[d], joint.match.b, env)))
          return false;
      return true;
    });
    if (!same_points) {
      why =
          Refusal{FusionReason::DifferentIterationSpace, "some of it is read at other indices than it is computed at"};
      continue;
    }
    append(a, b, std::move(joint), keep_axes);
    return std::nullopt;
  }
  return why;
}

std::optional<Refusal> Merger::horizontal(LoopNest& a, const LoopNest& b) {
  const ShapeEnv& env = pool_.env();
  bool rows_a = a.has_reduction(), rows_b = b.has_reduction();
  Refusal differ{FusionReason::DifferentIterationSpace,
                 "iteration spaces differ: " + axes_text(a) + " and " + axes_text(b)};
  if (a.axes.size() != b.axes.size()) return differ;
  AxisMatcher matcher(pool_, a.axes, b.axes);
  for (size_t i = 0; i < a.axes.size(); ++i) {
    // In row-major order of a pointwise nest the rows of the other need not come last: pair equal symbols first.
    size_t j = i;
    if (rows_a != rows_b)
      for (size_t k = 0; k < b.axes.size(); ++k)
        if (b.axes[k].var == a.axes[i].var) j = k;
    int x[] = {static_cast<int>(i)}, y[] = {static_cast<int>(j)};
    if (!env.known_equal(a.axes[i].extent, b.axes[j].extent) || !matcher.pair(x, y)) return differ;
  }
  Joint joint{matcher.take(), {}};
  if (auto refusal = assign_roles(joint, a, b)) return refusal;
  auto collect = [&](const LoopNest& nest, const Substitution& map) {
    std::vector<std::pair<int32_t, std::vector<SymExpr>>> out;
    auto need = reachable(nest.dag, store_roots(nest));
    for (ScalarId id = 0; id < nest.dag.size(); ++id) {
      const ScalarNode& node = nest.dag[id];
      if (!need[static_cast<size_t>(id)] || node.op != ScalarOp::Load) continue;
      std::vector<SymExpr> index;
      std::span<const ScalarId> at(node.args.data(), node.args.size() - (node.masked ? 1 : 0));
      auto e = plain(nest.dag, at);
      if (!e) continue;
      for (auto& i : *e) index.push_back(rewrite(i, map, env));
      out.emplace_back(nest.loads[static_cast<size_t>(node.operand)].index, std::move(index));
    }
    return out;
  };
  auto of_a = collect(a, joint.match.a), of_b = collect(b, joint.match.b);
  bool shared = std::any_of(of_b.begin(), of_b.end(),
                            [&](const auto& x) { return std::find(of_a.begin(), of_a.end(), x) != of_a.end(); });
  if (!shared) return Refusal{FusionReason::NoGain, "both read it, but at different indices"};
  append(a, b, std::move(joint), false);
  return std::nullopt;
}

} // namespace tessera::fusion
