// ShapeEnv::simplify: bottom-up rebuilding, and at each node the identities that hold under the facts.
#include "symbols/reasoner.h"
#include <algorithm>
#include <numeric>

namespace tessera {
using sym::Term;

namespace {
constexpr int kMaxSteps = 24;

int64_t gcd(int64_t a, int64_t b) {
  if (a == INT64_MIN || b == INT64_MIN) return 1;
  return std::gcd(a, b);
}
} // namespace

SymExpr ShapeEnv::Reasoner::simplify(const SymExpr& e, int steps) {
  if (e.is_const()) return e;
  auto& memo = env.memo_.simplified;
  if (auto it = memo.find(e); it != memo.end()) return it->second;
  SymExpr r = e;
  if (e.is_symbol()) {
    const Facts* f = facts(e);
    auto it = env.substitution_.find(e.symbol_id());
    if (it != env.substitution_.end())
      r = steps < kMaxSteps ? simplify(it->second, steps + 1) : it->second;
    else if (SymRange v = range(e); f && v.lo == v.hi && (!f->extent || simplify(*f->extent, steps).is_const(1)))
      r = v.lo;
  } else if (auto known = env.bounds_.find(e); known != env.bounds_.end() && known->second.lo == known->second.hi) {
    r = known->second.lo; // an equality with a constant that no symbol of it could be replaced by
  } else {
    std::vector<SymExpr> args;
    args.reserve(e.args().size());
    bool changed = false;
    for (const SymExpr& a : e.args()) {
      args.push_back(simplify(a, steps));
      changed |= args.back() != a;
    }
    r = changed ? sym::rebuild(e, args) : local(e);
    // Each step leads to something simpler; the limit is there in case two rules disagree about what that is.
    if (r != e && steps < kMaxSteps) r = simplify(r, steps + 1);
  }
  memo.insert_or_assign(e, r);
  return r;
}

SymExpr ShapeEnv::Reasoner::local(const SymExpr& e) {
  if (e.node()->opaque) return e;
  switch (e.op()) {
  case SymOp::Add: return local_sum(e);
  case SymOp::Mul: return local_product(e);
  case SymOp::FloorDiv:
  case SymOp::Mod: return local_division(e);
  case SymOp::Min:
  case SymOp::Max: return local_extremum(e);
  case SymOp::Eq:
  case SymOp::Ne:
  case SymOp::Lt:
  case SymOp::Le: return local_comparison(e);
  case SymOp::And:
  case SymOp::Or:
  case SymOp::Not: return env.holds_.contains(e) ? 1 : env.holds_.contains(sym_not(e)) ? 0 : e;
  default: return e;
  }
}

// k*d*floordiv(x, d) + k*mod(x, d) is k*x: an index taken apart and put together again.
SymExpr ShapeEnv::Reasoner::local_sum(const SymExpr& e) {
  const std::vector<Term> ts = sym::terms(e);
  if (ts.size() > 64) return e;
  for (const Term& t : ts) {
    for (const SymExpr& f : sym::factors(t.mono)) {
      if (f.op() != SymOp::Mod) continue;
      const SymExpr &x = f.args()[0], &d = f.args()[1];
      SymExpr k = sym::term(t.coeff, *sym::divide_monomial(t.mono, f));
      SymExpr whole = simplify(k * d * floordiv(x, d));
      if (whole.is_const(0)) continue;
      SymExpr left = e - sym::term(t.coeff, t.mono) - whole;
      if (sym::terms(left).size() + sym::terms(whole).size() + 1 == ts.size()) return left + k * x;
    }
  }
  return e;
}

// d*floordiv(x, d) is x when d is known to divide x.
SymExpr ShapeEnv::Reasoner::local_product(const SymExpr& e) {
  const Term t = sym::terms(e)[0];
  for (const SymExpr& f : sym::factors(t.mono)) {
    if (f.op() != SymOp::FloorDiv) continue;
    const SymExpr &x = f.args()[0], &d = f.args()[1];
    SymExpr k = sym::term(t.coeff, *sym::divide_monomial(t.mono, f));
    std::optional<SymExpr> q = sym::exact_divide(k, d);
    if (q && simplify(mod(x, d)).is_const(0)) return *q * x;
  }
  return e;
}

// floordiv(a, b) and mod(a, b), b > 0. If a = g*X + R and b = g*c with 0 <= R < g, then the quotient is floordiv(X, c)
// and the rest is g*mod(X, c) + R. Terms of `a` propose g: what they share with b.
SymExpr ShapeEnv::Reasoner::local_division(const SymExpr& e) {
  const SymExpr &a = e.args()[0], &b = e.args()[1];
  const bool quotient = e.op() == SymOp::FloorDiv;
  if (!positive_where(a, b) || a.node()->opaque || b.node()->opaque) return e;
  if (within(a, b)) return quotient ? SymExpr(0) : a;
  if (quotient) {
    if (SymRange r = range(e); r.lo == r.hi) return r.lo;
  } else {
    SymExpr q = floordiv(a, b);
    if (q.op() == SymOp::FloorDiv) {
      if (SymRange r = range(q); r.lo == r.hi) return a - b * r.lo;
    }
  }
  const std::vector<Term> ta = sym::terms(a), tb = sym::terms(b);
  if (ta.size() == 1 && ta[0].coeff == 1) {
    const SymExpr& f = ta[0].mono;
    if (f.op() == SymOp::FloorDiv && quotient && positive(f.args()[1])) return floordiv(f.args()[0], f.args()[1] * b);
    if (f.op() == SymOp::Mod && quotient) { // floordiv(mod(x, b*k), b) = mod(floordiv(x, b), k)
      if (auto k = sym::exact_divide(f.args()[1], b); k && positive(*k)) return mod(floordiv(f.args()[0], b), *k);
    }
  }
  if (!quotient) {
    for (const Term& t : ta) { // mod(k*mod(x, m) + y, b) = mod(k*x + y, b) when b divides k*m
      for (const SymExpr& f : sym::factors(t.mono)) {
        if (f.op() != SymOp::Mod) continue;
        SymExpr k = sym::term(t.coeff, *sym::divide_monomial(t.mono, f));
        if (sym::exact_divide(k * f.args()[1], b)) return mod(a - k * f + k * f.args()[0], b);
      }
    }
  }
  if (tb.size() != 1) return e;
  // Terms that b divides because of what is known of their symbols.
  const std::optional<int64_t> constant = b.as_const();
  if (constant && ta.size() > 0) {
    std::vector<Term> divisible, rest;
    for (const Term& t : ta) (divisor(sym::term(t.coeff, t.mono)) % *constant == 0 ? divisible : rest).push_back(t);
    if (!divisible.empty()) {
      SymExpr x = *sym::sum(divisible), r = *sym::sum(rest);
      if (!quotient) return mod(r, b);
      if (!rest.empty()) return floordiv(x, b) + floordiv(r, b);
    }
  }
  std::vector<SymExpr> candidates;
  for (const Term& t : ta) {
    SymExpr g = sym::term(gcd(t.coeff, tb[0].coeff), sym::common_monomial(t.mono, tb[0].mono));
    if (!g.is_const(1) && g != b && std::find(candidates.begin(), candidates.end(), g) == candidates.end())
      candidates.push_back(g);
  }
  // The largest first: it leaves the most to R.
  std::sort(candidates.begin(), candidates.end(), [](const SymExpr& x, const SymExpr& y) {
    const Term p = sym::terms(x)[0], q = sym::terms(y)[0];
    if (size_t m = sym::factors(p.mono).size(), n = sym::factors(q.mono).size(); m != n) return m > n;
    if (p.coeff != q.coeff) return p.coeff > q.coeff;
    return x < y;
  });
  for (const SymExpr& g : candidates) {
    if (!positive_where(a, g)) continue;
    const Term tg = sym::terms(g)[0];
    std::vector<Term> x, r;
    for (const Term& t : ta) {
      auto mono = sym::divide_monomial(t.mono, tg.mono);
      if (mono && t.mono.is_const() && g.is_const()) {
        if (int64_t q = sym::floor_div(t.coeff, tg.coeff); q != 0) x.push_back({q, 1});
        if (int64_t left = sym::floor_mod(t.coeff, tg.coeff); left != 0) r.push_back({left, 1});
      } else if (mono && t.coeff % tg.coeff == 0)
        x.push_back({t.coeff / tg.coeff, *mono});
      else
        r.push_back(t);
    }
    if (x.empty() || r.empty()) continue;
    SymExpr rest = simplify(*sym::sum(std::move(r))), whole = *sym::sum(std::move(x));
    if (!within(rest, g)) continue;
    SymExpr c = *sym::exact_divide(b, g);
    return quotient ? floordiv(whole, c) : g * mod(whole, c) + rest;
  }
  return e;
}

SymExpr ShapeEnv::Reasoner::local_extremum(const SymExpr& e) {
  std::vector<SymExpr> xs, pending{e};
  while (!pending.empty()) {
    SymExpr x = pending.back();
    pending.pop_back();
    if (x.op() != e.op())
      xs.push_back(x);
    else
      pending.insert(pending.end(), x.args().rbegin(), x.args().rend());
  }
  if (xs.size() > 16) return e;
  const size_t before = xs.size();
  for (size_t i = 0; i < xs.size(); ++i) {
    for (size_t k = 0; k < xs.size();) {
      SymRange r = i == k ? SymRange{-1, 1} : range(simplify(xs[i] - xs[k]));
      const bool drop = e.op() == SymOp::Min ? r.hi <= 0 : r.lo >= 0; // xs[i] makes xs[k] superfluous
      if (!drop) {
        ++k;
        continue;
      }
      xs.erase(xs.begin() + static_cast<std::ptrdiff_t>(k));
      if (k < i) --i;
    }
  }
  if (xs.size() == before) return e.op() == SymOp::Min ? any_of(e) : e;
  SymExpr r = xs[0];
  for (size_t i = 1; i < xs.size(); ++i) r = e.op() == SymOp::Min ? sym_min(r, xs[i]) : sym_max(r, xs[i]);
  return r;
}

// min(x + y, 1) with neither below 0 says whether one of them is above 0. Where y <= x, x alone says it; nor do factors
// count: what exporters make of "the first element, if there is one".
SymExpr ShapeEnv::Reasoner::any_of(const SymExpr& e) {
  const bool first = e.args()[0].is_const(1);
  if (!first && !e.args()[1].is_const(1)) return e;
  std::vector<Term> ts = sym::terms(e.args()[first ? 1 : 0]);
  if (ts.size() > 8) return e;
  for (const Term& t : ts)
    if (range(sym::term(t.coeff, t.mono)).lo < 0) return e;
  bool changed = false;
  for (Term& t : ts) {
    if (t.coeff <= 1 || t.mono.is_const()) continue;
    t.coeff = 1;
    changed = true;
  }
  for (size_t k = 0; k < ts.size() && ts.size() > 1;) {
    bool implied = false;
    for (size_t j = 0; j < ts.size() && !implied; ++j)
      implied =
          j != k && range(simplify(sym::term(ts[k].coeff, ts[k].mono) - sym::term(ts[j].coeff, ts[j].mono))).hi <= 0;
    changed |= implied;
    if (implied)
      ts.erase(ts.begin() + static_cast<std::ptrdiff_t>(k));
    else
      ++k;
  }
  return changed ? sym_min(*sym::sum(std::move(ts)), 1) : e;
}

SymExpr ShapeEnv::Reasoner::local_comparison(const SymExpr& e) {
  if (env.holds_.contains(e)) return 1;
  if (env.holds_.contains(sym_not(e))) return 0;
  const SymExpr d = simplify(e.args()[0] - e.args()[1]);
  const SymRange r = range(d);
  switch (e.op()) {
  case SymOp::Lt: return r.hi < 0 ? 1 : r.lo >= 0 ? 0 : e;
  case SymOp::Le: return r.hi <= 0 ? 1 : r.lo > 0 ? 0 : e;
  default: break;
  }
  const int64_t equal = e.op() == SymOp::Eq;
  if (r.lo == 0 && r.hi == 0) return equal;
  if (r.lo > 0 || r.hi < 0) return 1 - equal;
  if (int64_t c = sym::constant_part(d); c != 0 && !d.is_const() && !d.node()->opaque) {
    int64_t k = divisor(d - c);
    if (k > 1 && c % k != 0) return 1 - equal;
  }
  return e;
}

int64_t ShapeEnv::Reasoner::divisor(const SymExpr& e) {
  switch (e.op()) {
  case SymOp::Symbol: {
    const Facts* f = facts(e);
    return f ? f->divisor : 1;
  }
  case SymOp::Mul: {
    int64_t d = 1;
    for (const SymExpr& a : e.args())
      if (__builtin_mul_overflow(d, divisor(a), &d)) return 1;
    return d;
  }
  case SymOp::Add:
  case SymOp::Mod:
  case SymOp::Min:
  case SymOp::Max:
    return std::accumulate(e.args().begin(), e.args().end(), int64_t{0},
                           [&](int64_t g, const SymExpr& a) { return gcd(g, divisor(a)); });
  case SymOp::Select: return gcd(divisor(e.args()[1]), divisor(e.args()[2]));
  case SymOp::FloorDiv: {
    std::optional<int64_t> c = e.args()[1].as_const();
    int64_t d = divisor(e.args()[0]);
    return c && *c > 0 && d % *c == 0 ? d / *c : 1;
  }
  default: return e.known_divisor();
  }
}

} // namespace tessera
