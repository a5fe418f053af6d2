#include "codegen/schedule/online.h"
#include "codegen/schedule/fold.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>
#include <limits>

namespace tessera {
namespace {

size_t at(ScalarId id) { return static_cast<size_t>(id); }

class Finder {
public:
  Finder(const LoopNest& nest, Domain& d) : nest_(nest), d_(d), sums_(d.live.size()) {}

  // Nodes in order, so that the stages of arguments are final before a reduction is examined.
  OnlineSums run() {
    for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
      if (!d_.live[at(id)]) continue;
      const ScalarNode& n = nest_.dag[id];
      int stage = 0;
      for (ScalarId a : n.args) stage = std::max(stage, d_.stage[at(a)]);
      if (n.op == ScalarOp::Reduce) {
        ++stage;
        if (OnlineSum s = match(n); s.kind != OnlineSum::Kind::None) {
          int ready = d_.stage[at(s.moving)];
          for (ScalarId w : s.weights) ready = std::max(ready, d_.stage[at(w)]);
          if (int least = std::max(ready + 1, d_.stage[at(s.about)]); least < stage) {
            stage = least;
            sums_[at(id)] = std::move(s);
          }
        }
      }
      d_.stage[at(id)] = stage;
    }
    return std::move(sums_);
  }

private:
  [[nodiscard]] OnlineSum match(const ScalarNode& r) const {
    OnlineSum s;
    if (r.reduce != ReduceKind::Sum || (r.dtype != DType::F32 && r.dtype != DType::F64)) return s;
    const ScalarNode& n = nest_.dag[r.args[0]];
    bool square = (n.op == ScalarOp::Mul && n.args[0] == n.args[1]) ||
                  (n.op == ScalarOp::Pow && nest_.dag[n.args[1]].op == ScalarOp::Const && nest_.dag[n.args[1]].f == 2);
    if (n.dtype != r.dtype) return s;
    if (square) {
      if (difference(n.args[0], s)) s.kind = OnlineSum::Kind::Squares;
      return s;
    }
    std::vector<ScalarId> factors{r.args[0]};
    for (size_t i = 0; i < factors.size();) {
      const ScalarNode& f = nest_.dag[factors[i]];
      if (f.op == ScalarOp::Mul && d_.stage[at(factors[i])] > 0) {
        factors[i] = f.args[0];
        factors.push_back(f.args[1]);
      } else if (s.kind == OnlineSum::Kind::None && f.op == ScalarOp::Exp && difference(f.args[0], s)) {
        s.kind = OnlineSum::Kind::Exponentials;
        factors.erase(factors.begin() + static_cast<int64_t>(i));
      } else {
        ++i;
      }
    }
    s.weights = std::move(factors);
    return s;
  }
  // a - b, where b depends on earlier reductions and is constant in the row.
  bool difference(ScalarId id, OnlineSum& s) const {
    const ScalarNode& n = nest_.dag[id];
    if (n.op != ScalarOp::Sub || !d_.row_varying(n.args[0]) || d_.row_varying(n.args[1]) ||
        d_.stage[at(n.args[1])] == 0)
      return false;
    s.moving = n.args[0];
    s.about = n.args[1];
    return true;
  }

  const LoopNest& nest_;
  Domain& d_;
  OnlineSums sums_;
};

} // namespace

OnlineSums find_online(const LoopNest& nest, Domain& domain) { return Finder(nest, domain).run(); }

FoldState fold_state(const LoopNest& nest, const std::vector<ScalarId>& reduces, const OnlineSums& online,
                     DType position) {
  FoldState s;
  s.position = position;
  auto number = [&](DType d) {
    s.dtypes.push_back(d);
    return static_cast<int>(s.dtypes.size()) - 1;
  };
  for (ScalarId r : reduces) {
    FoldState::Part p{r, -1, -1};
    DType dtype = fold_dtype(nest, r);
    const OnlineSum* sum = online.empty() ? nullptr : &online[at(r)];
    if (sum && sum->kind != OnlineSum::Kind::None) {
      bool squares = sum->kind == OnlineSum::Kind::Squares;
      ReduceKind kind = squares ? ReduceKind::Sum : ReduceKind::Max;
      for (const FoldState::Part& o : s.parts) {
        const OnlineSum& other = online[at(o.reduce)];
        const ScalarNode& n = nest.dag[o.reduce];
        bool plain = other.kind == OnlineSum::Kind::None;
        if (plain ? n.reduce == kind && n.args[0] == sum->moving && fold_dtype(nest, o.reduce) == dtype
                  : other.kind == sum->kind && other.moving == sum->moving)
          p.reference = plain ? o.first : o.reference;
      }
      if (p.reference < 0) p.reference = number(dtype);
      if (squares && s.count < 0) s.count = number(dtype);
    }
    p.first = number(dtype);
    if (is_arg_fold(nest.dag[r])) number(position);
    s.parts.push_back(p);
  }
  return s;
}

using V = tile::ValueId;

V Fold::op(ScalarOp o, V x) const { return b_.scalar(o, std::array{x}); }
V Fold::op(ScalarOp o, V x, V y) const { return pointwise(b_, o, std::array{x, y}); }
const OnlineSum& Fold::online(const FoldState::Part& p) const {
  static const OnlineSum kNone;
  return online_.empty() ? kNone : online_[at(p.reduce)];
}

Fold::Values Fold::identities() const {
  Values list(state_.dtypes.size(), -1);
  auto set = [&](int i, ReduceKind kind) {
    if (i < 0 || list[static_cast<size_t>(i)] >= 0) return;
    DType d = state_.dtypes[static_cast<size_t>(i)];
    list[static_cast<size_t>(i)] = b_.const_f(d, reduce_identity_f64(kind, d));
  };
  for (const FoldState::Part& p : state_.parts) {
    auto kind = online(p).kind;
    Values own = fold_identities(b_, nest_, p.reduce, state_.position);
    std::copy(own.begin(), own.end(), list.begin() + p.first);
    if (kind != OnlineSum::Kind::None)
      set(p.reference, kind == OnlineSum::Kind::Squares ? ReduceKind::Sum : ReduceKind::Max);
  }
  set(state_.count, ReduceKind::Sum);
  return list;
}

V Fold::reference(const FoldState::Part& part, V number, V count) const {
  DType d = fold_dtype(nest_, part.reduce);
  if (online(part).kind == OnlineSum::Kind::Squares)
    return op(ScalarOp::Mul, number, op(ScalarOp::Reciprocal, op(ScalarOp::Max, count, b_.const_f(d, 1))));
  // Finite, so that exp(-inf - ref) is 0 if all elements so far are -inf.
  double lowest = d == DType::F64 ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
  return op(ScalarOp::Max, number, b_.const_f(d, lowest));
}

V Fold::term(const FoldState::Part& part, V value, V reference) const {
  V apart = op(ScalarOp::Sub, value, reference);
  return online(part).kind == OnlineSum::Kind::Squares ? op(ScalarOp::Mul, apart, apart) : op(ScalarOp::Exp, apart);
}

V Fold::moved(const FoldState::Part& part, V sum, V from, V to, V count) const {
  V by = term(part, from, to);
  return online(part).kind == OnlineSum::Kind::Squares ? op(ScalarOp::Add, sum, op(ScalarOp::Mul, by, count))
                                                       : op(ScalarOp::Mul, sum, by);
}

Fold::Values Fold::merge(const Values& states, int dim) const {
  Values out(states.size(), -1);
  auto number = [&](const Values& of, int i) { return of[static_cast<size_t>(i)]; };
  auto folded = [&](ReduceKind kind, int i) {
    V& v = out[static_cast<size_t>(i)];
    if (v < 0) v = b_.reduce(kind, number(states, i), dim);
    return v;
  };
  auto spread = [&](V v) { return b_.kernel().type(v).is_tile() ? b_.expand_dims(v, dim) : v; };
  V all = state_.count < 0 ? -1 : folded(ReduceKind::Sum, state_.count);
  V each = state_.count < 0 ? -1 : number(states, state_.count);
  for (const FoldState::Part& p : state_.parts) {
    const ScalarNode& r = nest_.dag[p.reduce];
    size_t first = static_cast<size_t>(p.first);
    auto kind = online(p).kind;
    if (is_arg_fold(r)) {
      std::tie(out[first], out[first + 1]) =
          b_.reduce_arg(r.reduce, states[first], states[first + 1], dim, r.select_last);
    } else if (kind == OnlineSum::Kind::None) {
      folded(r.reduce, p.first);
    } else {
      V to = folded(kind == OnlineSum::Kind::Squares ? ReduceKind::Sum : ReduceKind::Max, p.reference);
      to = reference(p, to, all);
      V from = reference(p, number(states, p.reference), each);
      out[first] = b_.reduce(ReduceKind::Sum, moved(p, states[first], from, spread(to), each), dim);
    }
  }
  return out;
}

Fold::Values Fold::united(const Values& a, const Values& b) const {
  Values out(a.size(), -1);
  auto number = [](const Values& of, int i) { return of[static_cast<size_t>(i)]; };
  auto both = [&](ReduceKind kind, int i) {
    V& v = out[static_cast<size_t>(i)];
    if (v < 0) v = op(fold_operator(kind), number(a, i), number(b, i));
    return v;
  };
  auto count = [&](const Values& of) { return state_.count < 0 ? -1 : number(of, state_.count); };
  if (state_.count >= 0) both(ReduceKind::Sum, state_.count);
  for (const FoldState::Part& p : state_.parts) {
    const ScalarNode& r = nest_.dag[p.reduce];
    const auto first = static_cast<size_t>(p.first);
    const auto kind = online(p).kind;
    if (is_arg_fold(r)) {
      const V wins = arg_replaces(b_, r, b[first], b[first + 1], a[first], a[first + 1]);
      for (size_t i : {first, first + 1}) out[i] = b_.scalar(ScalarOp::Select, std::array{wins, b[i], a[i]});
    } else if (kind == OnlineSum::Kind::None) {
      both(r.reduce, p.first);
    } else {
      V to = both(kind == OnlineSum::Kind::Squares ? ReduceKind::Sum : ReduceKind::Max, p.reference);
      to = reference(p, to, count(out));
      auto part = [&](const Values& of) {
        return moved(p, of[first], reference(p, number(of, p.reference), count(of)), to, count(of));
      };
      out[first] = op(ScalarOp::Add, part(a), part(b));
    }
  }
  return out;
}

bool Fold::rounds() const {
  return std::any_of(state_.parts.begin(), state_.parts.end(), [&](const FoldState::Part& p) {
    return nest_.dag[p.reduce].reduce == ReduceKind::Sum && is_float(state_.dtypes[static_cast<size_t>(p.first)]);
  });
}

V Fold::result(const FoldState::Part& p, const Values& state, V about) const {
  if (is_arg_fold(nest_.dag[p.reduce])) return b_.cast(state[static_cast<size_t>(p.first) + 1], DType::I64);
  V sum = state[static_cast<size_t>(p.first)];
  if (online(p).kind == OnlineSum::Kind::None) return sum;
  V count = state_.count < 0 ? -1 : state[static_cast<size_t>(state_.count)];
  return moved(p, sum, reference(p, state[static_cast<size_t>(p.reference)], count), about, count);
}

bool online_fits(const LoopNest& nest, const Domain& d) {
  const auto rows = std::count_if(d.axes.begin(), d.axes.end(), [](const Axis& a) { return a.role == AxisRole::Row; });
  for (ScalarId id = 0; id < nest.dag.size(); ++id)
    if (d.live[static_cast<size_t>(id)] && nest.dag[id].op == ScalarOp::CheckBounds && d.row_varying(id)) return false;
  return rows == 1;
}

bool splits(const LoopNest& nest, const Domain& d, ScheduleKind kind) {
  if (kind != ScheduleKind::ColumnLoop && !(kind == ScheduleKind::RowLoop && online_fits(nest, d))) return false;
  const Stages plan = plan_stages(nest, d);
  return d.reduces && plan.stages.size() == 1 && !plan.stages[0].reduces.empty() && plan.stages[0].stores.empty() &&
         plan.stages[0].caches.empty();
}

} // namespace tessera
