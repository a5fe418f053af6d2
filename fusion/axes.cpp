#include "fusion/axes.h"
#include <algorithm>

namespace tessera::fusion {

SymExpr AxisPool::axis(int slot, const SymExpr& extent) {
  auto [it, fresh] = axes_.try_emplace({slot, extent});
  if (fresh) {
    it->second = SymExpr::symbol("i" + std::to_string(slot));
    env_.set_axis(it->second, extent);
  }
  return it->second;
}

SymExpr AxisPool::fresh(const SymExpr& extent, const std::unordered_set<uint64_t>& taken) {
  for (int slot = 8;; ++slot) {
    SymExpr var = axis(slot, extent);
    if (!taken.contains(var.symbol_id())) return var;
  }
}

SymExpr rewrite(const SymExpr& e, const Substitution& axes, const ShapeEnv& env) {
  if (e.is_const()) return e;
  if (e.is_symbol()) {
    auto it = axes.find(e.symbol_id());
    return it == axes.end() ? e : it->second;
  }
  return env.simplify(axes.empty() ? e : e.substitute(axes));
}

std::optional<SymExpr> exact_quotient(const SymExpr& a, const SymExpr& b, const ShapeEnv& env) {
  if (b.is_const(0)) return std::nullopt;
  SymExpr q = env.simplify(floordiv(a, b));
  if (q * b == a || env.known_equal(q * b, a)) return q;
  return std::nullopt;
}

std::optional<std::vector<int>> radix_of(const SymExpr& index, const std::vector<Axis>& axes, const SymExpr& dim,
                                         const ShapeEnv& env) {
  std::vector<int> order;
  if (index.is_const(0) && env.known_equal(dim, 1)) return order;
  struct Digit {
    int axis;
    SymExpr stride;
  };
  std::vector<Digit> digits;
  SymExpr rest = index;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!rest.contains(axes[i].var)) continue;
    auto linear = rest.linear_in(axes[i].var);
    if (!linear) return std::nullopt;
    digits.push_back({static_cast<int>(i), linear->first});
    rest = linear->second;
  }
  if (!rest.is_const(0) || digits.empty()) return std::nullopt;
  SymExpr weight = 1;
  while (!digits.empty()) { // from the innermost digit outwards, each stride is what lies inside of it
    auto it =
        std::find_if(digits.begin(), digits.end(), [&](const Digit& d) { return env.known_equal(d.stride, weight); });
    if (it == digits.end()) return std::nullopt;
    order.push_back(it->axis);
    weight = weight * axes[static_cast<size_t>(it->axis)].extent;
    digits.erase(it);
  }
  if (!env.known_equal(weight, dim)) return std::nullopt;
  std::reverse(order.begin(), order.end());
  return order;
}

AxisMatcher::AxisMatcher(AxisPool& pool, const std::vector<Axis>& a, const std::vector<Axis>& b)
    : pool_(pool), a_(a), b_(b), used_a_(a.size()), used_b_(b.size()) {
  for (const auto& axis : a) taken_.insert(axis.var.symbol_id());
}

bool AxisMatcher::pair(std::span<const int> xs, std::span<const int> ys) {
  const ShapeEnv& env = pool_.env();
  for (int x : xs)
    if (used_a_[static_cast<size_t>(x)]) return false;
  for (int y : ys)
    if (used_b_[static_cast<size_t>(y)]) return false;
  struct Part {
    SymExpr extent;
    int x, y;
  };
  std::vector<Part> parts; // innermost first
  size_t i = xs.size(), j = ys.size();
  SymExpr left, right; // what is yet to be covered of the current axes
  bool open_x = false, open_y = false;
  while (true) {
    if (!open_x && i > 0) left = a_[static_cast<size_t>(xs[--i])].extent, open_x = true;
    if (!open_y && j > 0) right = b_[static_cast<size_t>(ys[--j])].extent, open_y = true;
    if (!open_x && !open_y) break;
    if (!open_x || !open_y) return false;
    int x = xs[i], y = ys[j];
    if (env.known_equal(left, right)) {
      parts.push_back({left, x, y});
      open_x = open_y = false;
    } else if (auto q = exact_quotient(left, right, env); q && !q->is_const(0)) {
      parts.push_back({right, x, y});
      left = *q;
      open_y = false;
    } else if (auto p = exact_quotient(right, left, env); p && !p->is_const(0)) {
      parts.push_back({left, x, y});
      right = *p;
      open_x = false;
    } else {
      return false;
    }
  }
  std::unordered_map<int, int> parts_of_x;
  for (const auto& p : parts) ++parts_of_x[p.x];
  std::unordered_map<uint64_t, SymExpr> weight_a, weight_b; // of the next atom in its axis
  size_t first = match_.atoms.size();
  for (const auto& p : parts) {
    const Axis& x = a_[static_cast<size_t>(p.x)];
    const Axis& y = b_[static_cast<size_t>(p.y)];
    SymExpr var = x.var;
    if (parts_of_x[p.x] > 1) {
      var = pool_.fresh(p.extent, taken_);
      match_.a_unchanged = false;
    }
    taken_.insert(var.symbol_id());
    match_.atoms.push_back({var, p.extent, p.x, p.y});
    auto place = [&](const Axis& axis, Substitution& into, std::unordered_map<uint64_t, SymExpr>& weights) {
      uint64_t id = axis.var.symbol_id();
      auto [w, fresh] = weights.try_emplace(id, SymExpr(1));
      into[id] = (fresh ? SymExpr(0) : into[id]) + var * w->second;
      w->second = w->second * p.extent;
    };
    place(x, match_.a, weight_a);
    place(y, match_.b, weight_b);
    used_a_[static_cast<size_t>(p.x)] = used_b_[static_cast<size_t>(p.y)] = true;
  }
  std::reverse(match_.atoms.begin() + static_cast<std::ptrdiff_t>(first), match_.atoms.end());
  return true;
}

void AxisMatcher::keep_a(int axis) {
  const Axis& x = a_[static_cast<size_t>(axis)];
  match_.atoms.push_back({x.var, x.extent, axis, -1});
  match_.a[x.var.symbol_id()] = x.var;
  used_a_[static_cast<size_t>(axis)] = true;
}

void AxisMatcher::keep_b(int axis) {
  const Axis& y = b_[static_cast<size_t>(axis)];
  SymExpr var = taken_.contains(y.var.symbol_id()) ? pool_.fresh(y.extent, taken_) : y.var;
  taken_.insert(var.symbol_id());
  match_.atoms.push_back({var, y.extent, -1, axis});
  match_.b[y.var.symbol_id()] = var;
  used_b_[static_cast<size_t>(axis)] = true;
}

namespace {

// Visits each distinct subexpression once, in a fixed order.
template <class F>
bool any_subexpression(const SymExpr& e, std::unordered_set<SymExpr>& seen, const F& f) {
  std::vector<const SymExpr*> stack{&e};
  while (!stack.empty()) {
    const SymExpr& x = *stack.back();
    stack.pop_back();
    if (x.is_const() || x.is_symbol() || !seen.insert(x).second) continue;
    if (f(x)) return true;
    auto args = x.args();
    for (size_t i = args.size(); i-- > 0;) stack.push_back(&args[i]);
  }
  return false;
}

} // namespace

std::optional<AxisSplit> find_split(std::span<const SymExpr> indices, const std::vector<Axis>& axes,
                                    const ShapeEnv& env) {
  std::optional<AxisSplit> found;
  std::unordered_set<SymExpr> seen;
  auto consider = [&](const SymExpr& e) {
    if (e.op() != SymOp::FloorDiv && e.op() != SymOp::Mod) return false;
    const SymExpr &x = e.args()[0], &d = e.args()[1];
    if (!x.is_symbol()) return false;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (!(axes[i].var == x)) continue;
      if (d.is_const(0) || d.is_const(1)) return false;
      for (const auto& other : axes)
        if (d.contains(other.var)) return false;
      auto q = exact_quotient(axes[i].extent, d, env);
      if (!q || q->is_const(1) || q->is_const(0)) return false;
      found = AxisSplit{static_cast<int>(i), d};
      return true;
    }
    return false;
  };
  for (const auto& e : indices)
    if (any_subexpression(e, seen, consider)) return found;
  return std::nullopt;
}

} // namespace tessera::fusion
