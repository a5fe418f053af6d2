// Ranges. Interval arithmetic alone cannot see that i*s + j < b*s for i < b, j < s, because b and s occur twice. So a
// sum with terms of both signs is also bounded by elimination: one atom after the other is replaced by the end of its
// own range that makes the sum largest (or smallest), and that end may be an expression: i by b - 1 gives (b-1)*s + j -
// b*s = j - s, j by s - 1 gives -1. What an atom's replacement does to the sum is known when the sign of its
// coefficient is.
#include "symbols/reasoner.h"
#include <algorithm>

namespace tessera {
namespace {
using sym::kHuge;
using sym::saturate;
using sym::Term;

SymRange hull(std::initializer_list<__int128> values) {
  return {saturate(std::min(values)), saturate(std::max(values))};
}
SymRange add(SymRange a, SymRange b) {
  return {saturate(static_cast<__int128>(a.lo) + b.lo), saturate(static_cast<__int128>(a.hi) + b.hi)};
}
SymRange multiply(SymRange a, SymRange b) {
  using W = __int128;
  return hull({W{a.lo} * b.lo, W{a.lo} * b.hi, W{a.hi} * b.lo, W{a.hi} * b.hi});
}
constexpr SymRange kAny{-kHuge, kHuge};

SymRange divide(SymRange a, SymRange b) {
  if (b.lo <= 0 && b.hi >= 0) return kAny;
  return hull(
      {sym::floor_div(a.lo, b.lo), sym::floor_div(a.lo, b.hi), sym::floor_div(a.hi, b.lo), sym::floor_div(a.hi, b.hi)});
}
SymRange modulo(SymRange a, SymRange b) {
  if (b.lo > 0) return a.lo >= 0 ? SymRange{a.hi < b.lo ? a.lo : 0, std::min(a.hi, b.hi - 1)} : SymRange{0, b.hi - 1};
  if (b.hi < 0) return {b.lo + 1, 0};
  return kAny;
}
SymRange intersect(SymRange a, SymRange b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }

// Atoms of a sum in the order of elimination: first those that hide symbols, then symbols, newest first (an axis'
// extent may speak of older ones).
std::vector<SymExpr> atoms(const SymExpr& e) {
  std::vector<SymExpr> out;
  for (const sym::Term& t : sym::terms(e))
    for (const SymExpr& f : sym::factors(t.mono)) out.push_back(f);
  std::sort(out.begin(), out.end(), [](const SymExpr& a, const SymExpr& b) {
    if (a.is_symbol() != b.is_symbol()) return b.is_symbol();
    if (a.is_symbol()) return a.symbol_id() > b.symbol_id();
    if (a.node()->depth != b.node()->depth) return a.node()->depth > b.node()->depth;
    return a < b;
  });
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// e == coeff*atom + rest, the atom neither in coeff nor, for a symbol, hidden anywhere else.
struct Linear {
  SymExpr coeff, rest;
};
std::optional<Linear> linear(const SymExpr& e, const SymExpr& atom) {
  if (atom.is_symbol()) {
    auto r = e.linear_in(atom);
    return r ? std::optional<Linear>({r->first, r->second}) : std::nullopt;
  }
  std::vector<sym::Term> with, without;
  for (const sym::Term& t : sym::terms(e)) {
    auto rest = sym::divide_monomial(t.mono, atom);
    if (!rest) {
      without.push_back(t);
      continue;
    }
    if (sym::divide_monomial(*rest, atom)) return std::nullopt; // squared
    with.push_back({t.coeff, *rest});
  }
  return Linear{*sym::sum(std::move(with)), *sym::sum(std::move(without))};
}

bool mixed_signs(const SymExpr& e) {
  bool plus = false, minus = false;
  for (const SymExpr& a : e.args()) {
    const SymNode* n = a.node();
    int64_t c = n->op == SymOp::Const || (n->op == SymOp::Mul && !n->opaque) ? n->value : 1;
    (c < 0 ? minus : plus) = true;
  }
  return plus && minus;
}
} // namespace

const ShapeEnv::Facts* ShapeEnv::Reasoner::facts(const SymExpr& symbol) const {
  env.memo_.newest = std::max(env.memo_.newest, symbol.symbol_id());
  auto it = env.facts_.find(symbol.symbol_id());
  return it == env.facts_.end() ? nullptr : &it->second;
}

SymRange ShapeEnv::Reasoner::range(const SymExpr& e) {
  if (e.is_const()) return {saturate(e.const_value()), saturate(e.const_value())};
  auto& memo = env.memo_.ranges;
  if (auto it = memo.find(e); it != memo.end()) return it->second;
  SymRange r = interval(e);
  if (e.op() == SymOp::Add && !e.node()->opaque) {
    if (!env.bounds_.empty()) {
      int64_t c = sym::constant_part(e);
      SymExpr x = e - c;
      bool flip = sym::terms(x)[0].coeff < 0;
      auto it = env.bounds_.find(flip ? -x : x);
      if (it != env.bounds_.end()) {
        SymRange b = flip ? SymRange{-it->second.hi, -it->second.lo} : it->second;
        r = intersect(r, add(b, {c, c}));
      }
    }
    if (mixed_signs(e)) r = intersect(r, {bound(e, false, 12), bound(e, true, 12)});
  } else if (!env.bounds_.empty()) {
    if (auto it = env.bounds_.find(e); it != env.bounds_.end()) r = intersect(r, it->second);
  }
  if (r.lo > r.hi) r.hi = r.lo; // contradictory facts: nothing can be wrong
  memo.emplace(e, r);
  return r;
}

SymRange ShapeEnv::Reasoner::interval(const SymExpr& e) {
  auto arg = [&](size_t i) { return range(e.args()[i]); };
  switch (e.op()) {
  case SymOp::Const: return {saturate(e.const_value()), saturate(e.const_value())};
  case SymOp::Symbol: {
    const Facts* f = facts(e);
    if (!f) return kAny;
    SymRange r = f->range;
    if (f->extent) r.hi = std::max(r.lo, std::min(r.hi, range(simplify(*f->extent)).hi - 1));
    return r;
  }
  case SymOp::Add: {
    SymRange r{0, 0};
    for (size_t i = 0; i < e.args().size(); ++i) r = add(r, arg(i));
    return r;
  }
  case SymOp::Mul: {
    SymRange r{1, 1};
    for (size_t i = 0; i < e.args().size(); ++i) r = multiply(r, arg(i));
    return r;
  }
  case SymOp::FloorDiv: return divide(arg(0), arg(1));
  case SymOp::Mod: return modulo(arg(0), arg(1));
  case SymOp::Min: return {std::min(arg(0).lo, arg(1).lo), std::min(arg(0).hi, arg(1).hi)};
  case SymOp::Max: return {std::max(arg(0).lo, arg(1).lo), std::max(arg(0).hi, arg(1).hi)};
  case SymOp::Select: return {std::min(arg(1).lo, arg(2).lo), std::max(arg(1).hi, arg(2).hi)};
  case SymOp::Scaled: { // monotonic
    const double factor = e.factor();
    auto end = [&](int64_t v, int64_t beyond) { return sym::scale(v, factor).value_or(beyond); };
    const SymRange r = arg(0);
    return factor > 0 ? SymRange{end(r.lo, -kHuge), end(r.hi, kHuge)} : SymRange{end(r.hi, -kHuge), end(r.lo, kHuge)};
  }
  default: return {0, 1};
  }
}

// Terms of a sum that share symbols, the extents of axes included, stand together; what stands apart varies by itself.
std::vector<SymExpr> ShapeEnv::Reasoner::independent_parts(const SymExpr& e) {
  std::vector<std::vector<sym::Term>> parts;
  std::unordered_map<uint64_t, size_t> part_of; // of symbols
  for (const sym::Term& t : sym::terms(e)) {
    const size_t mine = parts.size();
    parts.push_back({t});
    std::vector<SymExpr> pending = t.mono.symbols();
    std::unordered_set<uint64_t> seen;
    while (!pending.empty()) {
      const SymExpr s = pending.back();
      pending.pop_back();
      if (!seen.insert(s.symbol_id()).second) continue;
      if (auto [it, fresh] = part_of.emplace(s.symbol_id(), mine); !fresh && it->second != mine) {
        const size_t other = it->second;
        auto& from = parts[other];
        parts[mine].insert(parts[mine].end(), from.begin(), from.end());
        from.clear();
        for (auto& [symbol, part] : part_of)
          if (part == other) part = mine;
      }
      if (const Facts* f = facts(s); f && f->extent)
        for (const SymExpr& inner : f->extent->symbols()) pending.push_back(inner);
    }
  }
  std::vector<SymExpr> out;
  for (auto& p : parts)
    if (!p.empty()) out.push_back(*sym::sum(std::move(p)));
  return out;
}

int64_t ShapeEnv::Reasoner::bound(const SymExpr& e, bool upper, int budget) {
  const SymRange r = interval(e);
  const int64_t plain = upper ? r.hi : r.lo;
  if (e.op() != SymOp::Add || e.node()->opaque || budget == 0 || e.args().size() > 32) return plain;
  const std::vector<SymExpr> parts = independent_parts(e);
  if (parts.size() == 1) return eliminated(e, plain, upper, budget);
  __int128 all = 0;
  for (const SymExpr& part : parts) {
    const SymRange of = interval(part);
    const int64_t b = eliminated(part, upper ? of.hi : of.lo, upper, budget);
    if (b >= kHuge || b <= -kHuge) return plain;
    all += b;
  }
  return upper ? std::min(plain, saturate(all)) : std::max(plain, saturate(all));
}

// The bound of `e` by elimination where that is better than `plain`.
int64_t ShapeEnv::Reasoner::eliminated(const SymExpr& e, int64_t plain, bool upper, int budget) {
  const std::vector<sym::Term> ts = sym::terms(e);
  // Interval arithmetic is as exact for an atom that stands alone, unless a divisor has symbols.
  const auto alone = ts.size() == 1 ? sym::factors(ts[0].mono) : std::span<const SymExpr>{};
  if (ts.size() == 1 &&
      (alone.empty() || (alone.size() == 1 && alone[0].op() != SymOp::FloorDiv && alone[0].op() != SymOp::Mod)))
    return plain;
  for (const SymExpr& atom : atoms(e)) {
    if (--effort < 0) return plain;
    if (auto b = bound_without(e, atom, upper, budget)) return upper ? std::min(plain, *b) : std::max(plain, *b);
  }
  return plain;
}

// The bound after `atom` has been replaced; nullopt when it cannot be.
std::optional<int64_t> ShapeEnv::Reasoner::bound_without(const SymExpr& e, const SymExpr& atom, bool upper,
                                                         int budget) {
  auto split = linear(e, atom);
  if (!split) return std::nullopt;
  const auto& [coeff, rest] = *split;
  const SymRange sign = range(coeff);
  if (sign.lo < 0 && sign.hi > 0) return std::nullopt;
  const bool high = (sign.lo >= 0) == upper; // the atom's upper end makes the bound
  auto with = [&](const SymExpr& v) { return bound(coeff * v + rest, upper, budget - 1); };
  auto ends = [&](SymRange r) -> std::optional<int64_t> {
    int64_t v = high ? r.hi : r.lo;
    if (v >= kHuge || v <= -kHuge) return std::nullopt;
    return with(v);
  };
  switch (atom.op()) {
  case SymOp::Symbol: {
    const Facts* f = facts(atom);
    if (!f) return std::nullopt;
    if (f->extent && high) return with(simplify(*f->extent) - 1);
    return ends(f->range);
  }
  case SymOp::Mod: {
    const SymExpr& m = atom.args()[1];
    if (high && !m.is_const() && positive(m)) return with(m - 1);
    return ends(range(atom));
  }
  case SymOp::FloorDiv: {
    // With d > 0: x - d + 1 <= d*floordiv(x, d) <= x, so bound d*e and divide.
    const SymExpr &x = atom.args()[0], &d = atom.args()[1];
    const SymRange rd = range(d);
    if (rd.lo <= 0) return ends(range(atom));
    int64_t scaled = bound(coeff * (high ? x : x - d + 1) + d * rest, upper, budget - 1);
    if (scaled >= kHuge || scaled <= -kHuge) return ends(range(atom));
    // d is any of [lo, hi]: take the one that bounds least.
    int64_t by = upper == (scaled >= 0) ? rd.lo : rd.hi;
    return upper ? sym::floor_div(scaled, by) : -sym::floor_div(-scaled, by);
  }
  case SymOp::Min:
  case SymOp::Max: {
    int64_t a = with(atom.args()[0]), b = with(atom.args()[1]);
    // A minimum is below both of its operands; from below only the lesser one of them bounds it. Maximum: the other
    // way.
    const bool both = high == (atom.op() == SymOp::Min);
    return upper == both ? std::min(a, b) : std::max(a, b);
  }
  case SymOp::Select: {
    int64_t a = with(atom.args()[1]), b = with(atom.args()[2]);
    return upper ? std::max(a, b) : std::min(a, b);
  }
  default: return ends(range(atom));
  }
}

bool ShapeEnv::Reasoner::positive_where(const SymExpr& e, const SymExpr& divisor) {
  if (positive(divisor)) return true;
  const std::vector<Term> ts = sym::terms(divisor);
  if (ts.size() != 1 || ts[0].coeff <= 0) return false;
  std::vector<SymExpr> extents; // of the axes in e, those that are one product
  for (const SymExpr& s : e.symbols())
    if (const Facts* f = facts(s); f && f->extent) {
      const SymExpr extent = simplify(*f->extent);
      if (const std::vector<Term> xs = sym::terms(extent); xs.size() == 1 && !xs[0].mono.is_const())
        extents.push_back(xs[0].mono);
    }
  for (const SymExpr& factor : sym::factors(ts[0].mono)) {
    bool in_extent = std::any_of(extents.begin(), extents.end(), [&](const SymExpr& x) {
      const auto fs = sym::factors(x);
      return std::find(fs.begin(), fs.end(), factor) != fs.end();
    });
    // A factor of a positive product of sizes is positive when it cannot be negative.
    if (!positive(factor) && !(in_extent && range(factor).lo >= 0)) return false;
  }
  return true;
}

bool ShapeEnv::Reasoner::within(const SymExpr& e, const SymExpr& extent) {
  // Cheap refusals first, and only the bounds that are queried: this is what most of the time goes into.
  if (interval(e).hi < 0 || interval(e).lo <= -kHuge) return false;
  const SymExpr d = e - extent;
  const SymRange r = interval(d);
  if (r.lo >= 0) return false;
  if (r.hi >= 0 && (env.bounds_.empty() ? bound(d, true, 12) : range(d).hi) >= 0) return false;
  return range(e).lo >= 0;
}

} // namespace tessera
