#include "fusion/expand.h"
#include "fusion/structured_nest.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::fusion {

std::optional<ScalarNode> literal_of(const Graph& graph, ValueId value) {
  const Tensor* t = graph.constant(value);
  constexpr int64_t kMaxSplat = 16;
  if (!t || t->count() < 1 || t->count() > kMaxSplat || t->data() == nullptr) return std::nullopt;
  ScalarNode node;
  node.op = ScalarOp::Const;
  node.dtype = compute_dtype(t->dtype());
  switch (info(t->dtype()).kind) {
  case DTypeKind::Float:
    node.f = t->get_f64(0);
    if (node.f != node.f) return std::nullopt; // a NaN is not equal to itself: leave it in memory
    for (int64_t i = 1; i < t->count(); ++i)
      if (t->get_f64(i) != node.f || std::signbit(t->get_f64(i)) != std::signbit(node.f)) return std::nullopt;
    return node;
  case DTypeKind::Bool:
  case DTypeKind::Signed:
  case DTypeKind::Unsigned:
    node.i = t->get_i64(0);
    for (int64_t i = 1; i < t->count(); ++i)
      if (t->get_i64(i) != node.i) return std::nullopt;
    return node;
  default: return std::nullopt;
  }
}

bool known_contents(const Graph& graph, ValueId value) {
  const auto& contents = graph.value(value).contents;
  return contents && contents->size() <= kMaxKnownElements;
}

// ---- bodies of single operators

Result<const NodeBody*> NodeBodies::get(ValueId value) {
  auto it = done_.find(value);
  if (it == done_.end()) {
    const Value& v = graph_.value(value);
    TESSERA_ASSIGN(NodeBody made, make(graph_.node(v.producer), v.result));
    it = done_.emplace(value, std::make_unique<NodeBody>(std::move(made))).first;
  }
  return static_cast<const NodeBody*>(it->second.get());
}

namespace {

void measure(NodeBody& body, size_t operands, const ShapeEnv& env) {
  constexpr double kSymbolic = 128; // run of an innermost axis of unknown size
  ScalarId roots[] = {body.root};
  auto need = reachable(body.dag, roots);
  double run = 1;
  SymExpr inner;
  if (!body.axes.empty()) {
    body.innermost = body.axes.back().extent;
    inner = body.axes.back().var;
    auto range = env.range(body.innermost);
    run = std::clamp(kSymbolic, static_cast<double>(std::max<int64_t>(range.lo, 1)),
                     static_cast<double>(std::max<int64_t>(range.hi, 1)));
  }
  body.invariant.assign(operands, !body.axes.empty());
  std::vector<bool> varies(need.size());
  for (ScalarId id = 0; id < body.dag.size(); ++id) {
    const ScalarNode& node = body.dag[id];
    bool v = node.op == ScalarOp::Index && !body.axes.empty() && node.sym.contains(inner);
    for (ScalarId a : node.args) v = v || varies[static_cast<size_t>(a)];
    varies[static_cast<size_t>(id)] = v;
    if (!need[static_cast<size_t>(id)]) continue;
    if (node.op == ScalarOp::Load && v) body.invariant[static_cast<size_t>(node.operand)] = false;
    if (node.op == ScalarOp::Load || node.op == ScalarOp::Const) continue;
    if (node.op == ScalarOp::Index && node.dtype != DType::Bool) continue; // addresses are strength-reduced
    body.cost += info(node.op).cost / (v ? 1 : run);
  }
}

// The index with which an operand of shape `from` is read along a result of shape `to` indexed by `at`.
std::vector<ScalarId> broadcast_index(ScalarDag& dag, const SymShape& from, std::span<const SymExpr> at,
                                      const ShapeEnv& env) {
  std::vector<ScalarId> index;
  size_t skip = at.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d)
    index.push_back(dag.index(env.known_equal(from[d], 1) ? SymExpr(0) : at[skip + d]));
  return index;
}

} // namespace

Result<NodeBody> NodeBodies::make(const Node& node, int result) const {
  NodeBody out;
  ShapeEnv& env = pool_.env();
  auto axes_of = [&](const SymShape& shape, const std::function<AxisRole(size_t)>& role) {
    std::vector<SymExpr> at;
    for (size_t d = 0; d < shape.size(); ++d) {
      SymExpr extent = env.simplify(shape[d]);
      if (extent.is_const(1)) {
        at.emplace_back(0);
        continue;
      }
      SymExpr var = pool_.axis(static_cast<int>(d), extent);
      out.axes.push_back({var, extent, role(d)});
      at.push_back(var);
    }
    return at;
  };
  auto outer = [](size_t) { return AxisRole::Outer; };
  auto operand_loads = [&](std::span<const SymExpr> at) {
    std::vector<ScalarId> loads;
    for (size_t k = 0; k < node.operands.size(); ++k) {
      if (!node.operands[k].valid()) {
        loads.push_back(-1);
        continue;
      }
      const TensorType& type = graph_.type(node.operands[k]);
      loads.push_back(
          out.dag.load(static_cast<int>(k), compute_dtype(type.dtype), broadcast_index(out.dag, type.shape, at, env)));
    }
    return loads;
  };
  const TensorType& type = graph_.type(node.results[static_cast<size_t>(result)]);
  if (const auto* pointwise = node.op->pointwise()) {
    out.at = axes_of(type.shape, outer);
    for (ValueId operand : node.operands)
      if (operand.valid() && graph_.type(operand).rank() > type.rank())
        return Diagnostic(ErrorCode::Internal, node.location, "an operand has more dimensions than the result");
    auto loads = operand_loads(out.at);
    TESSERA_ASSIGN(out.root, pointwise->body(out.dag, loads, node, graph_));
  } else if (const auto* indexing = node.op->indexing()) {
    out.at = axes_of(type.shape, outer);
    std::vector<ScalarId> at;
    for (const auto& e : out.at) at.push_back(out.dag.index(e));
    TESSERA_ASSIGN(out.root, indexing->body(out.dag, result, at, node, graph_));
  } else if (const auto* reduction = node.op->reduction()) {
    const SymShape& shape = graph_.type(node.operands[0]).shape;
    Ints over = node.attributes.ints("axes");
    auto reduced = [&](size_t d) { return std::find(over.begin(), over.end(), static_cast<int64_t>(d)) != over.end(); };
    auto at = axes_of(shape, [&](size_t d) { return reduced(d) ? AxisRole::Row : AxisRole::Outer; });
    std::stable_sort(out.axes.begin(), out.axes.end(), [](const Axis& a, const Axis& b) { return a.role < b.role; });
    bool keep = node.attributes.i("keepdims", 1) != 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!reduced(d))
        out.at.push_back(at[d]);
      else if (keep)
        out.at.emplace_back(0);
    }
    ScalarId x = operand_loads(at)[0];
    bool rows = std::any_of(out.axes.begin(), out.axes.end(), [](const Axis& a) { return a.role == AxisRole::Row; });
    bool position = reduction->kind == ReduceKind::ArgMax || reduction->kind == ReduceKind::ArgMin;
    if (rows)
      out.root = out.dag.reduce(reduction->kind, x, node.attributes.i("select_last", 0) != 0);
    else
      out.root = position ? out.dag.index(SymExpr(0)) : x; // of single elements
  } else {
    TESSERA_ASSIGN(out, structured_body(graph_, node, pool_));
  }
  measure(out, node.operands.size(), env);
  return out;
}

// ---- expansion

ScalarId Expander::zero(DType dtype) {
  return is_float(dtype) ? nest_.dag.constant_f(dtype, 0) : nest_.dag.constant_i(dtype, 0);
}

ScalarId Expander::both(ScalarId a, ScalarId b) {
  if (a < 0) return b;
  if (b < 0) return a;
  auto x = nest_.dag.as_sym(a), y = nest_.dag.as_sym(b);
  if (x && y) return nest_.dag.condition(pool_.env().simplify(sym_and(*x, *y)));
  return nest_.dag.op(ScalarOp::And, a, b);
}

bool Expander::rounds(const Node& node) { return ops::is(node, ScalarOp::Cast) && node.attributes.i("rounds") != 0; }

// To `storage` and back.
ScalarId Expander::through(ScalarId scalar, DType storage) {
  return nest_.dag.cast(nest_.dag.cast(scalar, storage), compute_dtype(storage));
}

// Rounds to the storage dtype and back. f16 and bf16 only where the model requests it, or every operator has to round as
// if it were alone; smaller floats always: a quantisation is meant by them.
ScalarId Expander::rounded(ScalarId scalar, ValueId value) {
  DType storage = graph_.type(value).dtype;
  DType compute = compute_dtype(storage);
  if (nest_.dag[scalar].dtype != compute) scalar = nest_.dag.cast(scalar, compute);
  if (!computes_wider(storage)) return scalar;
  const bool rounds_here = strict_ || info(storage).bits < 16 || rounds(graph_.node(graph_.value(value).producer));
  return rounds_here ? through(scalar, storage) : scalar;
}

std::optional<ScalarId> Expander::known(ValueId value, std::span<const ScalarId> at) {
  if (!known_contents(graph_, value)) return std::nullopt;
  const auto& contents = *graph_.value(value).contents;
  const TensorType& type = graph_.type(value);
  if (!is_integer(type.dtype) && type.dtype != DType::Bool) return std::nullopt;
  auto strides = contiguous_strides(type.shape);
  SymExpr flat;
  std::unordered_map<uint64_t, ScalarId> data; // the place of an element that data decide
  if (std::all_of(at.begin(), at.end(), [&](ScalarId i) { return nest_.dag.as_sym(i).has_value(); })) {
    for (size_t d = 0; d < at.size(); ++d) flat += *nest_.dag.as_sym(at[d]) * strides[d];
    flat = pool_.env().simplify(flat);
  } else {
    static const SymExpr element = SymExpr::symbol("element");
    ScalarId place = nest_.dag.index(SymExpr(0));
    for (size_t d = 0; d < at.size(); ++d)
      place = nest_.dag.op(ScalarOp::Add, place,
                           nest_.dag.op(ScalarOp::Mul, nest_.dag.cast(at[d], DType::I64), nest_.dag.index(strides[d])));
    flat = element;
    data.emplace(element.symbol_id(), place);
  }
  auto range = pool_.env().range(flat);
  auto last = static_cast<int64_t>(contents.size()) - 1;
  if (contents.empty() || range.hi < 0 || range.lo > last) return std::nullopt;
  SymExpr picked = contents.back(); // indices out of range are masked by the reader
  for (int64_t i = last - 1; i >= std::max<int64_t>(range.lo, 0); --i)
    picked = sym_select(sym_eq(flat, SymExpr(i)), contents[static_cast<size_t>(i)], picked);
  picked = pool_.env().simplify(picked);
  const bool condition = type.dtype == DType::Bool;
  ScalarId id = !data.empty() ? index_of_data(nest_.dag, picked, data, condition)
                : condition   ? nest_.dag.condition(picked)
                              : nest_.dag.index(picked);
  if (condition) return id;
  return type.dtype == DType::I64 ? id : nest_.dag.cast(id, type.dtype);
}

// 0 where the predicate does not hold.
ScalarId Expander::masked(ScalarId scalar, ScalarId predicate) {
  const ScalarNode& node = nest_.dag[scalar];
  const bool already = node.op == ScalarOp::Load && node.masked;
  if (predicate < 0 || already) return scalar;
  const DType dtype = node.dtype; // `node` moves when something is added
  return nest_.dag.op(ScalarOp::Select, predicate, scalar, zero(dtype));
}

Result<ScalarId> Expander::element(ValueId value, std::span<const ScalarId> at, ScalarId predicate) {
  if (predicate >= 0) {
    if (auto p = nest_.dag.as_sym(predicate)) {
      if (p->is_const(0)) return zero(compute_dtype(graph_.type(value).dtype));
      if (p->is_const()) predicate = -1;
    }
  }
  if (auto literal = literal_of(graph_, value)) return masked(nest_.dag.add(std::move(*literal)), predicate);
  if (auto id = known(value, at)) return masked(*id, predicate);
  if (!is_virtual_(value)) {
    int slot = load_slot(nest_, value);
    return nest_.dag.load(slot, compute_dtype(graph_.type(value).dtype), {at.begin(), at.end()}, predicate);
  }
  std::vector<ScalarId> key{value.index, predicate, strict_ ? 1 : 0};
  key.insert(key.end(), at.begin(), at.end());
  if (auto it = memo_.find(key); it != memo_.end()) return it->second;
  TESSERA_ASSIGN(ScalarId scalar, body(value, at, predicate));
  if (keep_) list(value, at, predicate, scalar);
  scalar = masked(scalar, predicate);
  memo_.emplace(std::move(key), scalar);
  return scalar;
}

ScalarId Expander::checked(ScalarId scalar, std::span<const ScalarId> at) {
  ScalarDag& dag = nest_.dag;
  if (std::all_of(at.begin(), at.end(), [&](ScalarId i) { return dag.as_sym(i).has_value(); })) return scalar;
  const std::vector<bool> of_index = reachable(dag, at);
  std::vector<ScalarId> checks;
  for (ScalarId id = 0; id < static_cast<ScalarId>(of_index.size()); ++id)
    if (of_index[static_cast<size_t>(id)] && dag[id].op == ScalarOp::CheckBounds) checks.push_back(id);
  if (checks.empty()) return scalar;
  ScalarId roots[] = {scalar};
  const std::vector<bool> of_value = reachable(dag, roots);
  const DType dtype = dag[scalar].dtype;
  for (ScalarId id : checks) {
    if (of_value[static_cast<size_t>(id)]) continue;
    const ScalarId inside = dag.op(ScalarOp::Lt, id, dag[id].args[1]);
    ScalarId other = zero(dtype); // nobody reads it; a choice between equal values would fold
    if (other == scalar) other = is_float(dtype) ? dag.constant_f(dtype, 1) : dag.constant_i(dtype, 1);
    scalar = dag.op(ScalarOp::Select, inside, scalar, other);
  }
  return scalar;
}

// Elements at indices or under predicates that are data are not listed.
void Expander::list(ValueId value, std::span<const ScalarId> at, ScalarId predicate, ScalarId scalar) {
  InnerValue inner{value, {}, 1, scalar};
  for (ScalarId i : at) {
    auto e = nest_.dag.as_sym(i);
    if (!e) return;
    inner.index.push_back(*e);
  }
  if (predicate >= 0) {
    auto condition = nest_.dag.as_sym(predicate);
    if (!condition) return;
    inner.condition = *condition;
  }
  nest_.inner.push_back(std::move(inner));
}

Result<ScalarId> Expander::body(ValueId value, std::span<const ScalarId> at, ScalarId predicate) {
  NodeId id = graph_.value(value).producer;
  const Node& node = graph_.node(id);
  if (seen_.insert(id.index).second) nest_.sources.push_back(id);
  TESSERA_ASSIGN(const NodeBody* body, bodies_.get(value));
  Substitution axes;
  std::unordered_map<uint64_t, ScalarId> data;
  for (size_t d = 0; d < at.size(); ++d) {
    if (!body->at[d].is_symbol()) continue;
    uint64_t symbol = body->at[d].symbol_id();
    if (auto e = nest_.dag.as_sym(at[d]))
      axes.emplace(symbol, *e);
    else
      data.emplace(symbol, at[d]);
  }
  TESSERA_ASSIGN(ScalarId scalar, copy(node, *body, axes, data, predicate));
  // A view moves elements as they are; anything else has a result of its own.
  const auto* indexing = node.op->indexing();
  return indexing ? scalar : rounded(scalar, value);
}

// The dtype that a value has in memory, seen through views and the widening of operands.
DType Expander::storage_behind(ValueId value) const {
  for (;;) {
    const DType dtype = graph_.type(value).dtype;
    const Node* node = graph_.producer(value);
    if (computes_wider(dtype) || !is_float(dtype) || !node || !is_virtual_(value)) return dtype;
    const bool widens = ops::is(*node, ScalarOp::Cast) && is_float(graph_.type(node->operands[0]).dtype);
    if (!widens && !(node->op->indexing() && node->operands.size() == 1)) return dtype;
    if (widens && !computes_wider(graph_.type(node->operands[0]).dtype)) return dtype;
    value = node->operands[0];
  }
}

// Loads whose values decide something in `body`, or that the model casts.
std::vector<Expander::Seen> Expander::seen_roundings(const Node& node, const NodeBody& body,
                                                     const std::vector<bool>& need) {
  std::vector<Seen> out(need.size(), Seen::No);
  auto mark = [&](ScalarId id, Seen how) {
    while (body.dag[id].op == ScalarOp::Cast) id = body.dag[id].args[0];
    if (body.dag[id].op == ScalarOp::Load) out[static_cast<size_t>(id)] = std::max(out[static_cast<size_t>(id)], how);
  };
  for (ScalarId id = 0; id < body.dag.size(); ++id) {
    if (!need[static_cast<size_t>(id)]) continue;
    const ScalarNode& n = body.dag[id];
    const bool position =
        n.op == ScalarOp::Reduce && (n.reduce == ReduceKind::ArgMax || n.reduce == ReduceKind::ArgMin);
    const bool truncates = n.op == ScalarOp::Cast && !is_float(n.dtype);
    if (info(n.op).jumps || position || truncates)
      for (ScalarId a : n.args) mark(a, Seen::Decides);
  }
  if (rounds(node)) mark(body.root, Seen::Cast);
  // Tensor cores multiply what memory would hold.
  if (ops::is_matrix_product(node) || ops::is(node, Structured::Conv))
    for (ScalarId id = 0; id < body.dag.size(); ++id)
      if (need[static_cast<size_t>(id)]) mark(id, Seen::Cast);
  return out;
}

Result<ScalarId> Expander::copy(const Node& node, const NodeBody& body, const Substitution& axes,
                                const std::unordered_map<uint64_t, ScalarId>& data, ScalarId predicate) {
  ScalarId roots[] = {body.root};
  std::vector<bool> need = reachable(body.dag, roots);
  const std::vector<Seen> seen = seen_roundings(node, body, need);
  std::vector<ScalarId> to(static_cast<size_t>(body.dag.size()), -1);
  ScalarDag& dag = nest_.dag;
  for (ScalarId id = 0; id < body.dag.size(); ++id) {
    if (!need[static_cast<size_t>(id)]) continue;
    const ScalarNode& old = body.dag[id];
    ScalarId& out = to[static_cast<size_t>(id)];
    if (old.op == ScalarOp::Index) {
      bool has_data = false;
      if (!data.empty())
        for (const auto& s : old.sym.symbols()) has_data |= data.contains(s.symbol_id());
      if (has_data) {
        std::unordered_map<uint64_t, ScalarId> leaves = data;
        for (const auto& [symbol, e] : axes) leaves.emplace(symbol, dag.index(e));
        out = index_of_data(dag, old.sym, leaves, old.dtype == DType::Bool);
      } else {
        SymExpr e = rewrite(old.sym, axes, pool_.env());
        out = old.dtype == DType::Bool ? dag.condition(e) : dag.index(e);
      }
      continue;
    }
    std::vector<ScalarId> args;
    for (ScalarId a : old.args) args.push_back(to[static_cast<size_t>(a)]);
    if (old.op == ScalarOp::Load) {
      ScalarId p = predicate;
      if (old.masked) {
        p = both(predicate, args.back());
        args.pop_back();
      }
      const ValueId operand = node.operands[static_cast<size_t>(old.operand)];
      const DType storage = storage_behind(operand);
      const Seen how = computes_wider(storage) ? seen[static_cast<size_t>(id)] : Seen::No;
      const bool strict = std::exchange(strict_, strict_ || how == Seen::Decides);
      auto read = element(operand, args, p);
      strict_ = strict;
      TESSERA_ASSIGN(out, std::move(read));
      out = checked(out, args);
      if (how != Seen::No) {
        const DType computed = dag[out].dtype;
        out = dag.cast(through(dag.cast(out, compute_dtype(storage)), storage), computed);
      }
      continue;
    }
    if (old.op == ScalarOp::CheckBounds && predicate >= 0) { // what is not read must not be reported
      args[0] = dag.op(ScalarOp::Select, predicate, args[0], dag.index(SymExpr(0)));
      args[1] = dag.op(ScalarOp::Select, predicate, args[1], dag.index(SymExpr(1)));
    }
    ScalarNode fresh = old;
    fresh.args = std::move(args);
    if (fresh.op == ScalarOp::CheckBounds) {
      fresh.i = int64_t{graph_.value(node.results[0]).producer.index} + 1;
      const auto symbols = fresh.sym.symbols();
      const bool has_data =
          std::any_of(symbols.begin(), symbols.end(), [&](const SymExpr& s) { return data.contains(s.symbol_id()); });
      fresh.sym = has_data ? SymExpr(-1) : rewrite(fresh.sym, axes, pool_.env());
    }
    if (fresh.op == ScalarOp::Cast) {
      // A cast to a small float computes on in f32; where it has to round, `rounded` or the store does it.
      fresh.dtype = compute_dtype(fresh.dtype);
      if (dag[fresh.args[0]].dtype == fresh.dtype) {
        out = fresh.args[0];
        continue;
      }
    }
    out = dag.add(std::move(fresh));
  }
  return to[static_cast<size_t>(body.root)];
}

Result<LoopNest> Expander::written_out(const LoopNest& from, ValueId value) {
  nest_ = LoopNest{};
  memo_.clear();
  seen_.clear();
  nest_.name = from.name;
  nest_.axes = from.axes;
  nest_.sources = from.sources;
  for (NodeId n : from.sources) seen_.insert(n.index);
  Status status;
  auto to = copy_dag(from.dag, store_roots(from), nest_.dag, {}, pool_.env(),
                     [&](ScalarDag& dag, const ScalarNode& load, ScalarId, std::span<const ScalarId> args) {
                       const ValueId read = from.loads[static_cast<size_t>(load.operand)];
                       if (read == value && status.ok()) {
                         const ScalarId predicate = load.masked ? args.back() : -1;
                         const auto at = args.first(args.size() - (load.masked ? 1 : 0));
                         auto element = body(value, at, predicate);
                         if (element.ok() && keep_) list(value, at, predicate, *element);
                         if (element.ok()) return checked(masked(*element, predicate), at);
                         status = std::move(element).take_error();
                       }
                       ScalarNode copy = load;
                       copy.args.assign(args.begin(), args.end());
                       copy.operand = load_slot(nest_, read);
                       return dag.add(std::move(copy));
                     });
  TESSERA_TRY(std::move(status));
  for (const Store& s : from.stores) {
    Store store = s;
    store.scalar = to[static_cast<size_t>(s.scalar)];
    for (ScalarId& i : store.index) i = to[static_cast<size_t>(i)];
    nest_.stores.push_back(std::move(store));
  }
  copy_inner(from.inner, to, {}, pool_.env(), nest_.inner);
  return std::move(nest_);
}

Result<LoopNest> Expander::nest(ValueId value) {
  nest_ = LoopNest{};
  memo_.clear();
  seen_.clear();
  const Value& v = graph_.value(value);
  const Node& node = graph_.node(v.producer);
  TESSERA_ASSIGN(const NodeBody* body, bodies_.get(value));
  nest_.axes = body->axes;
  nest_.name = node.location.node.empty() ? std::string(node.op->name) : node.location.node;
  Store store;
  store.value = value;
  for (const auto& e : body->at) store.index.push_back(nest_.dag.index(e));
  ScalarId scalar = -1;
  if (auto id = known(value, store.index); id && !folds(node)) {
    scalar = *id;
  } else {
    TESSERA_ASSIGN(scalar, copy(node, *body, {}, {}, -1));
  }
  store.scalar = node.op->indexing() ? scalar : rounded(scalar, value);
  store.per_row = nest_.has_reduction();
  nest_.stores.push_back(std::move(store));
  nest_.sources.push_back(v.producer); // after what was written out into it
  return std::move(nest_);
}

std::optional<Expander::Access> Expander::access(ValueId value, std::span<const SymExpr> at) {
  nest_ = LoopNest{};
  memo_.clear();
  seen_.clear();
  std::vector<ScalarId> index;
  for (const auto& e : at) index.push_back(nest_.dag.index(e));
  auto scalar = element(value, index, -1);
  if (!scalar) return std::nullopt;
  double scale = 1;
  ScalarId at_load = *scalar;
  while (nest_.dag[at_load].op == ScalarOp::Mul || nest_.dag[at_load].op == ScalarOp::Div) {
    const ScalarNode& n = nest_.dag[at_load];
    size_t constant = nest_.dag[n.args[1]].op == ScalarOp::Const ? 1 : 0;
    const ScalarNode& factor = nest_.dag[n.args[constant]];
    if (factor.op != ScalarOp::Const || !is_float(factor.dtype)) return std::nullopt;
    if (n.op == ScalarOp::Div && (constant == 0 || factor.f == 0)) return std::nullopt;
    scale *= n.op == ScalarOp::Mul ? factor.f : 1 / factor.f;
    at_load = n.args[1 - constant];
  }
  const ScalarNode& node = nest_.dag[at_load];
  if (node.op != ScalarOp::Load || node.masked) return std::nullopt;
  Access out{nest_.loads[static_cast<size_t>(node.operand)], {}, scale};
  for (ScalarId a : node.args) {
    auto e = nest_.dag.as_sym(a);
    if (!e) return std::nullopt;
    out.index.push_back(*e);
  }
  return out;
}

} // namespace tessera::fusion
