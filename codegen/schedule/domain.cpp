#include "codegen/schedule/domain.h"
#include <algorithm>
#include <unordered_set>

namespace tessera {
namespace {

using Substitution = std::unordered_map<uint64_t, SymExpr>;

class Maker {
public:
  Maker(const Graph& graph, const LoopNest& nest) : graph_(graph), nest_(nest) {}

  Result<Domain> run() {
    d_.axes = nest_.axes;
    collect_facts();
    TESSERA_TRY(buffers());
    mark_live();
    accesses();
    roles();
    drop_unit_axes();
    split();
    collapse();
    if (d_.reduces && std::none_of(d_.axes.begin(), d_.axes.end(), is_row)) { // a reduction over a single element
      SymExpr var = SymExpr::symbol("r");
      d_.env.set_range(var, {0, 0});
      d_.axes.push_back({var, 1, AxisRole::Row});
    }
    if (std::any_of(d_.axes.begin(), d_.axes.end(),
                    [&](const Axis& a) { return !is_row(a) && d_.env.simplify(a.extent).is_const(0); }))
      none_varies();
    if (d_.axes.size() > 64) return Diagnostic(ErrorCode::UnsupportedFeature, "a loop nest of more than 64 axes");
    find_dependences(nest_, d_);
    return std::move(d_);
  }

private:
  static bool is_row(const Axis& a) { return a.role == AxisRole::Row; }

  // Copies the facts of the graph's environment about symbols of this nest.
  void collect_facts() {
    auto& seen = symbols_;
    for (const Axis& a : nest_.axes) seen.insert(a.var.symbol_id()); // set_axis_range() knows more of them
    auto take = [&](const SymExpr& e) {
      for (const SymExpr& s : e.symbols()) {
        if (!seen.insert(s.symbol_id()).second) continue;
        d_.env.set_range(s, graph_.env().range(s));
        if (int64_t k = graph_.env().divisor(s); k > 1) d_.env.set_divisor(s, k);
      }
    };
    for (const Axis& a : nest_.axes) take(a.extent);
    for (ValueId v : nest_.loads)
      for (const SymExpr& e : graph_.type(v).shape) take(e);
    for (const Store& s : nest_.stores)
      for (const SymExpr& e : graph_.type(s.value).shape) take(e);
    for (ScalarId id = 0; id < nest_.dag.size(); ++id)
      if (nest_.dag[id].op == ScalarOp::Index) take(nest_.dag[id].sym);
    for (const Axis& a : nest_.axes) set_axis_range(a);
  }
  void set_axis_range(const Axis& a) {
    // The index of an axis that may have no point is no constant: an element at it must not be read without a point.
    const int64_t least = d_.env.simplify(a.extent).is_const(1) ? 0 : 1;
    d_.env.set_range(a.var, {0, std::max<int64_t>(least, d_.env.range(a.extent).hi - 1)});
  }

  Status buffers() {
    auto add = [&](ValueId v, bool written) -> Result<int> {
      for (size_t i = 0; i < d_.buffers.size(); ++i)
        if (d_.buffers[i] == v) {
          if (written) d_.written[i] = true;
          return static_cast<int>(i);
        }
      DType t = graph_.type(v).dtype;
      const DTypeInfo& info = tessera::info(t);
      if (info.bits < 8 || info.kind == DTypeKind::Complex || info.kind == DTypeKind::Held)
        return Diagnostic(ErrorCode::UnsupportedType, "kernels of " + std::string(info.name) + " are not generated");
      d_.buffers.push_back(v);
      d_.written.push_back(written);
      return static_cast<int>(d_.buffers.size()) - 1;
    };
    for (ValueId v : nest_.loads) {
      TESSERA_ASSIGN(int b, add(v, false));
      load_buffer_.push_back(b);
    }
    for (const Store& s : nest_.stores) {
      TESSERA_ASSIGN(int b, add(s.value, true));
      d_.stores.push_back({.buffer = b});
    }
    return {};
  }

  void mark_live() {
    d_.live.assign(static_cast<size_t>(nest_.dag.size()), 0);
    for (const Store& s : nest_.stores) d_.live[static_cast<size_t>(s.scalar)] = 1;
    for (ScalarId id = nest_.dag.size() - 1; id >= 0; --id) { // arguments precede their users
      if (!d_.live[static_cast<size_t>(id)]) continue;
      const ScalarNode& n = nest_.dag[id];
      for (size_t i = 0; i < n.args.size(); ++i) {
        bool index = n.op == ScalarOp::Load && i < index_count(n);
        if (!index || !nest_.dag.as_sym(n.args[i])) d_.live[static_cast<size_t>(n.args[i])] = 1;
      }
    }
  }
  // -1 if it has symbols that are neither axes nor sizes of what the nest reads and writes.
  [[nodiscard]] SymExpr known_position(const SymExpr& e) const {
    for (const SymExpr& s : e.symbols())
      if (!symbols_.contains(s.symbol_id())) return -1;
    return d_.env.simplify(e);
  }
  static size_t index_count(const ScalarNode& n) { return n.args.size() - (n.masked ? 1 : 0); }

  void accesses() {
    d_.sym.resize(d_.live.size());
    d_.loads.resize(d_.live.size());
    for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
      if (!d_.live[static_cast<size_t>(id)]) continue;
      const ScalarNode& n = nest_.dag[id];
      if (n.op == ScalarOp::Index) d_.sym[static_cast<size_t>(id)] = d_.env.simplify(n.sym);
      if (n.op == ScalarOp::CheckBounds) d_.sym[static_cast<size_t>(id)] = known_position(n.sym);
      if (n.op == ScalarOp::Reduce) d_.reduces = true;
      if (n.op != ScalarOp::Load) continue;
      Access& a = d_.loads[static_cast<size_t>(id)];
      a.buffer = load_buffer_[static_cast<size_t>(n.operand)];
      if (n.masked) a.predicate = n.args.back();
      linearise(a, std::span<const ScalarId>(n.args).first(index_count(n)));
    }
    for (size_t i = 0; i < nest_.stores.size(); ++i) linearise(d_.stores[i], nest_.stores[i].index);
  }
  void linearise(Access& a, std::span<const ScalarId> index) {
    std::vector<SymExpr> strides = contiguous_strides(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).shape);
    for (size_t i = 0; i < index.size(); ++i) {
      if (auto s = nest_.dag.as_sym(index[i])) {
        a.offset += *s * strides[i];
        a.index.push_back(d_.env.simplify(*s));
      } else {
        a.terms.emplace_back(index[i], strides[i]);
      }
    }
    if (!a.terms.empty()) a.index.clear();
    a.offset = d_.env.simplify(a.offset);
  }

  void each_expression(const std::function<void(SymExpr&)>& f) { tessera::each_expression(nest_, d_, f); }

  // Row axes without a reduction are ordinary axes, unless something is stored once per outer point.
  void roles() {
    for (const Store& s : nest_.stores)
      d_.reduces = d_.reduces || (s.per_row && std::any_of(d_.axes.begin(), d_.axes.end(), is_row));
    if (!d_.reduces)
      for (Axis& a : d_.axes) a.role = AxisRole::Outer;
  }

  void substitute(const Substitution& by) {
    each_expression([&](SymExpr& e) { substitute(e, by); });
    each_position(nest_, d_, [&](SymExpr& e) { substitute(e, by); });
  }
  void substitute(SymExpr& e, const Substitution& by) const {
    for (const auto& [id, to] : by)
      for (const SymExpr& s : e.symbols())
        if (s.symbol_id() == id) {
          e = d_.env.simplify(e.substitute(by));
          return;
        }
  }
  // Without points, no index of theirs varies.
  void none_varies() {
    Substitution by;
    for (const Axis& a : d_.axes)
      if (!is_row(a)) by.emplace(a.var.symbol_id(), 0);
    substitute(by);
  }
  void drop_unit_axes() {
    Substitution by;
    for (const Axis& a : d_.axes)
      if (d_.env.simplify(a.extent).is_const(1)) by.emplace(a.var.symbol_id(), 0);
    if (by.empty()) return;
    substitute(by);
    std::erase_if(d_.axes, [&](const Axis& a) { return by.contains(a.var.symbol_id()); });
  }

  // A divisor k of axis `a`'s extent such that floordiv(a, k) or mod(a, k) occurs in e.
  std::optional<SymExpr> find_divisor(const SymExpr& e, const Axis& a) const {
    if ((e.op() == SymOp::FloorDiv || e.op() == SymOp::Mod) && e.args()[0] == a.var) {
      const SymExpr& k = e.args()[1];
      bool free = std::none_of(d_.axes.begin(), d_.axes.end(), [&](const Axis& x) { return k.contains(x.var); });
      if (free && !k.is_const(1) && d_.env.range(k).lo >= 1 &&
          d_.env.simplify(floordiv(a.extent, k) * k) == d_.env.simplify(a.extent))
        return k;
    }
    for (const SymExpr& x : e.args())
      if (auto k = find_divisor(x, a)) return k;
    return std::nullopt;
  }
  void split() {
    for (int round = 0; round < 8; ++round) {
      std::optional<SymExpr> k;
      size_t axis = 0;
      for (; axis < d_.axes.size() && !k; ++axis)
        each_expression([&](SymExpr& e) {
          if (!k) k = find_divisor(e, d_.axes[axis]);
        });
      if (!k) return;
      Axis old = d_.axes[--axis];
      Axis high{SymExpr::symbol(old.var.symbol_name() + "o"), d_.env.simplify(floordiv(old.extent, *k)), old.role};
      Axis low{SymExpr::symbol(old.var.symbol_name() + "i"), *k, old.role};
      set_axis_range(high);
      set_axis_range(low);
      d_.axes[axis] = high;
      d_.axes.insert(d_.axes.begin() + static_cast<int64_t>(axis) + 1, low);
      substitute({{old.var.symbol_id(), high.var * *k + low.var}});
    }
  }

  // True if e depends on a and b only through a*extent(b) + b.
  bool sees_as_one(const SymExpr& e, const Axis& a, const Axis& b) const {
    auto in_a = e.linear_in(a.var);
    if (!in_a) return false;
    auto in_b = in_a->second.linear_in(b.var);
    if (!in_b || in_a->first.contains(b.var)) return false;
    return in_a->first == in_b->first * b.extent || d_.env.simplify(in_a->first - in_b->first * b.extent).is_const(0);
  }
  void collapse() {
    bool changed = true;
    while (changed) {
      changed = false;
      for (size_t i = 0; i < d_.axes.size() && !changed; ++i)
        for (size_t j = 0; j < d_.axes.size() && !changed; ++j) {
          const Axis a = d_.axes[i], b = d_.axes[j];
          // Row axes keep their order: it numbers the positions of argmax.
          if (i == j || a.role != b.role || (is_row(a) && j != i + 1)) continue;
          bool good = true;
          each_expression([&](SymExpr& e) { good = good && sees_as_one(e, a, b); });
          if (!good) continue;
          Axis c{SymExpr::symbol(b.var.symbol_name()), d_.env.simplify(a.extent * b.extent), a.role};
          set_axis_range(c);
          const Substitution apart{{a.var.symbol_id(), floordiv(c.var, b.extent)},
                                   {b.var.symbol_id(), mod(c.var, b.extent)}};
          each_position(nest_, d_, [&](SymExpr& e) {
            if (!sees_as_one(e, a, b)) substitute(e, apart);
          });
          substitute({{a.var.symbol_id(), 0}, {b.var.symbol_id(), c.var}});
          d_.axes[j] = c;
          d_.axes.erase(d_.axes.begin() + static_cast<int64_t>(i));
          changed = true;
        }
    }
  }

  const Graph& graph_;
  const LoopNest& nest_;
  Domain d_;
  std::vector<int> load_buffer_;         // operand -> parameter
  std::unordered_set<uint64_t> symbols_; // of the nest: axes, and sizes of which d_.env knows the facts
};

} // namespace

void each_expression(const LoopNest& nest, Domain& domain, const std::function<void(SymExpr&)>& f) {
  for (size_t i = 0; i < domain.live.size(); ++i) {
    if (!domain.live[i]) continue;
    ScalarOp op = nest.dag[static_cast<ScalarId>(i)].op;
    if (op == ScalarOp::Index) f(domain.sym[i]);
    if (op == ScalarOp::Load) f(domain.loads[i].offset);
  }
  for (Access& a : domain.stores) f(a.offset);
  for (SymExpr& c : domain.conditions) f(c);
}

void each_position(const LoopNest& nest, Domain& domain, const std::function<void(SymExpr&)>& f) {
  for (size_t i = 0; i < domain.live.size(); ++i) {
    if (!domain.live[i]) continue;
    const ScalarOp op = nest.dag[static_cast<ScalarId>(i)].op;
    if (op == ScalarOp::CheckBounds) f(domain.sym[i]);
    if (op == ScalarOp::Load)
      for (SymExpr& e : domain.loads[i].index) f(e);
  }
}

void find_dependences(const LoopNest& nest, Domain& domain) {
  domain.row_mask = 0;
  for (size_t i = 0; i < domain.axes.size(); ++i)
    if (domain.axes[i].role == AxisRole::Row) domain.row_mask |= uint64_t{1} << i;
  domain.deps.assign(domain.live.size(), 0);
  domain.stage.assign(domain.live.size(), 0);
  for (size_t i = 0; i < domain.live.size(); ++i) {
    if (!domain.live[i]) continue;
    const ScalarNode& n = nest.dag[static_cast<ScalarId>(i)];
    uint64_t deps = 0;
    int stage = 0;
    if (n.op == ScalarOp::Index) deps = domain.axes_in(domain.sym[i]);
    if (n.op == ScalarOp::Load) deps = domain.axes_in(domain.loads[i].offset);
    for (ScalarId a : n.args) { // an argument used only inside an offset has no own dependences
      deps |= domain.deps[static_cast<size_t>(a)];
      stage = std::max(stage, domain.stage[static_cast<size_t>(a)]);
    }
    if (n.op == ScalarOp::Reduce) {
      deps &= ~domain.row_mask;
      ++stage;
    }
    domain.deps[i] = deps;
    domain.stage[i] = stage;
  }
}

uint64_t Domain::axes_in(const SymExpr& e) const {
  uint64_t bits = 0;
  if (e.is_const()) return bits;
  for (const SymExpr& s : e.symbols())
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i].var == s) bits |= uint64_t{1} << i;
  return bits;
}
uint64_t Domain::access_deps(const Access& a) const {
  uint64_t bits = axes_in(a.offset);
  for (const auto& [node, stride] : a.terms) bits |= deps[static_cast<size_t>(node)];
  if (a.predicate >= 0) bits |= deps[static_cast<size_t>(a.predicate)];
  return bits;
}
SymExpr Domain::row_count() const {
  SymExpr n = 1;
  for (const Axis& a : axes)
    if (a.role == AxisRole::Row) n *= a.extent;
  return n;
}

Result<Domain> make_domain(const Graph& graph, const LoopNest& nest) { return Maker(graph, nest).run(); }

std::vector<int> read_only_where(const Graph& graph, const LoopNest& nest, const Domain& d, const Access& w) {
  std::vector<int> out;
  for (size_t b = 0; b < d.buffers.size(); ++b) {
    if (d.written[b]) continue;
    bool good = info(graph.type(d.buffers[b]).dtype).bits ==
                info(graph.type(d.buffers[static_cast<size_t>(w.buffer)]).dtype).bits;
    for (size_t i = 0; i < d.live.size() && good; ++i)
      if (d.live[i] && nest.dag[static_cast<ScalarId>(i)].op == ScalarOp::Load &&
          d.loads[i].buffer == static_cast<int>(b))
        good = d.loads[i].terms.empty() && d.loads[i].offset == w.offset;
    if (good) out.push_back(static_cast<int>(b));
  }
  return out;
}

bool squares_fit(const LoopNest& nest, const Domain& d) {
  for (size_t n = 0; n < d.live.size(); ++n) {
    if (!d.live[n]) continue;
    const ScalarOp op = nest.dag[static_cast<ScalarId>(n)].op;
    if (op == ScalarOp::CheckBounds) return false;
    if (op == ScalarOp::Load && (!d.loads[n].terms.empty() || d.loads[n].predicate >= 0)) return false;
  }
  return std::all_of(d.stores.begin(), d.stores.end(), [](const Access& a) { return a.terms.empty(); });
}

} // namespace tessera
