// Constructors of everything but sums and products: division, minimum, comparisons, logic. Each applies the identities
// that hold whatever the symbols are.
#include "symbols/node.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace tessera {
namespace sym {
namespace {
uint64_t magnitude(int64_t v) { return v < 0 ? uint64_t{0} - static_cast<uint64_t>(v) : static_cast<uint64_t>(v); }

// Greatest common divisor of the coefficients, without the constant term when `with_constant` is false; 0 when there
// are none.
int64_t coefficient_gcd(const std::vector<Term>& ts, bool with_constant) {
  uint64_t g = 0;
  for (const Term& t : ts)
    if (with_constant || !t.mono.is_const()) g = std::gcd(g, magnitude(t.coeff));
  return g > static_cast<uint64_t>(INT64_MAX) ? 1 : static_cast<int64_t>(g);
}

// e with every coefficient divided by g and every monomial by m; both divide.
SymExpr divide_all(const std::vector<Term>& ts, int64_t g, const SymExpr& m) {
  std::vector<Term> out;
  for (const Term& t : ts) out.push_back({t.coeff / g, *divide_monomial(t.mono, m)});
  return *sum(std::move(out));
}

// The factors that numerator and divisor share, taken out of both: numerator = g*m*reduced + left, divisor =
// g*m*divisor', 0 <= left < g, left only where the divisor is a positive constant.
struct Reduced {
  int64_t g = 1, left = 0;
  SymExpr m = 1, numerator, divisor;
};
std::optional<Reduced> reduce(const SymExpr& a, const SymExpr& b) {
  std::vector<Term> ta = terms(a), tb = terms(b);
  int64_t c0 = constant_part(a), gb = coefficient_gcd(tb, true);
  int64_t g = std::gcd(coefficient_gcd(ta, false), gb);
  Reduced r;
  if (g > 1 && (c0 % g == 0 || (b.is_const() && b.const_value() > 0))) {
    r.g = g;
    r.left = floor_mod(c0, g);
  }
  SymExpr m = tb[0].mono;
  for (const Term& t : tb) m = common_monomial(m, t.mono);
  for (const Term& t : ta) m = common_monomial(m, t.mono);
  r.m = m;
  if (r.g == 1 && m.is_const()) return std::nullopt;
  if (r.left != 0) {
    auto exact = sum([&] {
      ta.push_back({-r.left, 1});
      return ta;
    }());
    if (!exact) return std::nullopt;
    ta = terms(*exact);
  }
  r.numerator = divide_all(ta, r.g, m);
  r.divisor = divide_all(tb, r.g, m);
  return r;
}
} // namespace

std::optional<SymExpr> exact_divide(const SymExpr& a, const SymExpr& b) {
  const std::vector<Term> tb = terms(b);
  if (tb.empty()) return std::nullopt;
  std::vector<Term> quotient;
  SymExpr rest = a;
  for (int step = 0; step < 64; ++step) {
    if (rest.is_const(0)) return sum(std::move(quotient));
    const Term lead = terms(rest)[0];
    auto mono = divide_monomial(lead.mono, tb[0].mono);
    if (!mono || tb[0].coeff == 0 || lead.coeff == INT64_MIN || lead.coeff % tb[0].coeff != 0) return std::nullopt;
    quotient.push_back({lead.coeff / tb[0].coeff, *mono});
    SymExpr taken = term(quotient.back().coeff, *mono) * b;
    if (taken.node()->opaque) return std::nullopt;
    rest = rest - taken;
    if (rest.node()->opaque) return std::nullopt;
  }
  return std::nullopt;
}

Split split(const SymExpr& a, const SymExpr& b) {
  const std::vector<Term> tb = terms(b);
  if (tb.size() != 1) {
    if (auto q = exact_divide(a, b)) return {*q, 0};
    return {0, a};
  }
  const int64_t c = tb[0].coeff;
  std::vector<Term> q, r;
  for (const Term& t : terms(a)) {
    auto mono = divide_monomial(t.mono, tb[0].mono);
    if (!mono || (c == -1 && t.coeff == INT64_MIN)) {
      r.push_back(t);
      continue;
    }
    // A constant goes into [0, c) so that (s-3)/2 and (s-1)/2 share their division; other coefficients keep their sign.
    bool constant = t.mono.is_const() && b.is_const();
    int64_t quotient = constant ? floor_div(t.coeff, c) : b.is_const() || t.coeff % c == 0 ? t.coeff / c : 0;
    if (quotient != 0) q.push_back({quotient, *mono});
    if (int64_t left = t.coeff - quotient * c; left != 0) r.push_back({left, t.mono});
  }
  return {*sum(std::move(q)), *sum(std::move(r))};
}

bool is_boolean(const SymExpr& e) {
  switch (e.op()) {
  case SymOp::Const: return e.const_value() == 0 || e.const_value() == 1;
  case SymOp::Eq:
  case SymOp::Ne:
  case SymOp::Lt:
  case SymOp::Le:
  case SymOp::And:
  case SymOp::Or:
  case SymOp::Not: return true;
  case SymOp::Select: return is_boolean(e.args()[1]) && is_boolean(e.args()[2]);
  default: return false;
  }
}

SymExpr rebuild(const SymExpr& e, std::span<const SymExpr> args) {
  return e.op() == SymOp::Const || e.op() == SymOp::Symbol ? e : make(e.op(), args);
}

SymExpr make(SymOp op, std::span<const SymExpr> x) {
  switch (op) {
  case SymOp::Const:
  case SymOp::Symbol: break; // have no arguments
  case SymOp::Add: {
    std::vector<Term> all;
    for (const SymExpr& a : x)
      for (const Term& t : terms(a)) all.push_back(t);
    if (auto r = sum(std::move(all))) return *r;
    SymExpr r = x[0];
    for (size_t i = 1; i < x.size(); ++i) r = r + x[i];
    return r;
  }
  case SymOp::Mul: return product(x);
  case SymOp::FloorDiv: return floordiv(x[0], x[1]);
  case SymOp::Mod: return mod(x[0], x[1]);
  case SymOp::Min: return sym_min(x[0], x[1]);
  case SymOp::Max: return sym_max(x[0], x[1]);
  case SymOp::Eq: return sym_eq(x[0], x[1]);
  case SymOp::Ne: return sym_ne(x[0], x[1]);
  case SymOp::Lt: return sym_lt(x[0], x[1]);
  case SymOp::Le: return sym_le(x[0], x[1]);
  case SymOp::And: return sym_and(x[0], x[1]);
  case SymOp::Or: return sym_or(x[0], x[1]);
  case SymOp::Not: return sym_not(x[0]);
  case SymOp::Select: return sym_select(x[0], x[1], x[2]);
  case SymOp::Scaled: return sym_scaled(x[0], std::bit_cast<double>(x[1].const_value()));
  }
  TESSERA_UNREACHABLE("SymOp");
}
} // namespace sym

using sym::Term;

SymExpr floordiv(const SymExpr& a, const SymExpr& b) {
  if (b.is_const(0)) return sym::intern(SymOp::FloorDiv, {a, b});
  if (a.is_const(0) || b.is_const(1)) return a;
  if (a == b) return 1;
  if (b.is_const() && b.const_value() < 0 && b.const_value() != INT64_MIN) return floordiv(-a, -b);
  if (a.is_const() && b.is_const()) return sym::floor_div(a.const_value(), b.const_value());
  if (a.node()->opaque || b.node()->opaque) return sym::intern(SymOp::FloorDiv, {a, b});
  auto [q, r] = sym::split(a, b);
  if (r.is_const(0)) return q;
  if (r != a && !b.is_const()) return q + floordiv(r, b);
  const std::optional<int64_t> d = b.as_const();
  if (r.is_const() && d) return q + sym::floor_div(r.const_value(), *d);
  if (auto reduced = sym::reduce(r, b)) return q + floordiv(reduced->numerator, reduced->divisor);
  if (d && *d > 0) {
    // floor(floor(x/c) + k) / d) = floor((x + k*c) / (c*d))
    std::vector<Term> tr = sym::terms(r);
    const bool alone = tr.size() == 1 || (tr.size() == 2 && tr[1].mono.is_const());
    const SymExpr& x = tr[0].mono;
    if (alone && tr[0].coeff == 1 && (x.op() == SymOp::FloorDiv || x.op() == SymOp::Mod)) {
      std::optional<int64_t> c = x.args()[1].as_const();
      int64_t k = tr.size() == 2 ? tr[1].coeff : 0, cd = 0, kc = 0;
      if (c && *c > 0 && x.op() == SymOp::FloorDiv && !__builtin_mul_overflow(*c, *d, &cd) &&
          !__builtin_mul_overflow(k, *c, &kc))
        return q + floordiv(x.args()[0] + kc, cd);
      if (c && *c > 0 && x.op() == SymOp::Mod && k == 0) {
        if (*c % *d == 0) return q + mod(floordiv(x.args()[0], *d), *c / *d);
        if (*c <= *d) return q;
      }
    }
  }
  return q + sym::intern(SymOp::FloorDiv, {r, b});
}

SymExpr ceildiv(const SymExpr& a, const SymExpr& b) {
  if (b.is_const() && b.const_value() > 0) return floordiv(a + (b - 1), b);
  return -floordiv(-a, b); // any sign of b
}

SymExpr mod(const SymExpr& a, const SymExpr& b) {
  if (b.is_const(0)) return sym::intern(SymOp::Mod, {a, b});
  if (a.is_const(0) || b.is_const(1) || a == b) return 0;
  if (b.is_const() && b.const_value() < 0 && b.const_value() != INT64_MIN) return -mod(-a, -b);
  if (a.is_const() && b.is_const()) return sym::floor_mod(a.const_value(), b.const_value());
  if (a.node()->opaque || b.node()->opaque) return sym::intern(SymOp::Mod, {a, b});
  SymExpr r = sym::split(a, b).rest;
  if (r.is_const(0)) return 0;
  if (r != a) return mod(r, b);
  const std::optional<int64_t> d = b.as_const();
  if (auto reduced = sym::reduce(r, b))
    return sym::term(reduced->g, reduced->m) * mod(reduced->numerator, reduced->divisor) + reduced->left;
  if (d && *d > 0) {
    std::vector<Term> tr = sym::terms(r);
    for (Term& t : tr) { // inner moduli that are multiples of the outer one do nothing
      if (t.mono.op() != SymOp::Mod) continue;
      std::optional<int64_t> c = t.mono.args()[1].as_const();
      int64_t kc = 0;
      if (!c || *c <= 0 || __builtin_mul_overflow(t.coeff, *c, &kc) || kc % *d != 0) continue;
      return mod(r - sym::term(t.coeff, t.mono) + SymExpr(t.coeff) * t.mono.args()[0], b);
    }
    if (tr.size() == 1 && tr[0].coeff == 1 && tr[0].mono.op() == SymOp::Mod) {
      std::optional<int64_t> c = tr[0].mono.args()[1].as_const();
      if (c && *c > 0 && *c <= *d) return r;
    }
  }
  return sym::intern(SymOp::Mod, {r, b});
}

namespace {
void flatten(SymOp op, const SymExpr& e, std::vector<SymExpr>& out) {
  if (e.op() == op) {
    for (const SymExpr& a : e.args()) flatten(op, a, out);
  } else
    out.push_back(e);
}
SymExpr chain(SymOp op, const std::vector<SymExpr>& xs) {
  SymExpr r = xs[0];
  for (size_t i = 1; i < xs.size(); ++i) r = sym::intern(op, {r, xs[i]});
  return r;
}
// Sorted, each once.
std::vector<SymExpr> flat_sorted(SymOp op, const SymExpr& a, const SymExpr& b) {
  std::vector<SymExpr> xs;
  flatten(op, a, xs);
  flatten(op, b, xs);
  std::sort(xs.begin(), xs.end());
  xs.erase(std::unique(xs.begin(), xs.end()), xs.end());
  return xs;
}

SymExpr extremum(SymOp op, const SymExpr& a, const SymExpr& b) {
  if (a == b) return a;
  std::vector<SymExpr> xs = flat_sorted(op, a, b);
  // Only one of several operands that differ by a constant remains.
  for (size_t i = 0; i < xs.size(); ++i) {
    for (size_t k = i + 1; k < xs.size();) {
      std::optional<int64_t> d = (xs[i] - xs[k]).as_const();
      if (!d) {
        ++k;
        continue;
      }
      if ((op == SymOp::Min) == (*d > 0)) xs[i] = xs[k];
      xs.erase(xs.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  std::sort(xs.begin(), xs.end());
  return chain(op, xs);
}

// Comparisons say: lhs ? rhs, with every term on the side where its coefficient is positive, divided by what all share.
SymExpr comparison(SymOp op, const SymExpr& a, const SymExpr& b) {
  SymExpr d = a - b;
  if (d.node()->opaque || a.node()->opaque || b.node()->opaque) return sym::intern(op, {a, b});
  if (auto v = d.as_const()) {
    bool holds = op == SymOp::Eq ? *v == 0 : op == SymOp::Ne ? *v != 0 : op == SymOp::Lt ? *v < 0 : *v <= 0;
    return holds ? 1 : 0;
  }
  std::vector<Term> ts = sym::terms(d);
  int64_t c = sym::constant_part(d);
  uint64_t ug = 0;
  for (const Term& t : ts)
    if (!t.mono.is_const())
      ug = std::gcd(ug, t.coeff < 0 ? uint64_t{0} - static_cast<uint64_t>(t.coeff) : static_cast<uint64_t>(t.coeff));
  int64_t g = ug > static_cast<uint64_t>(INT64_MAX) ? 1 : static_cast<int64_t>(ug);
  if (g > 1) {
    const bool equality = op == SymOp::Eq || op == SymOp::Ne;
    if (equality && c % g != 0) return op == SymOp::Ne ? 1 : 0;
    // g*X + c < 0 is X + floor(c/g) < 0; g*X + c <= 0 is X + ceil(c/g) <= 0
    c = op == SymOp::Le ? -sym::floor_div(-c, g) : sym::floor_div(c, g);
  }
  const bool flip = (op == SymOp::Eq || op == SymOp::Ne) && ts[0].coeff < 0;
  std::vector<Term> left, right;
  auto put = [&](int64_t coeff, const SymExpr& mono) {
    if ((coeff > 0) != flip)
      left.push_back({flip ? -coeff : coeff, mono});
    else
      right.push_back({flip ? coeff : -coeff, mono});
  };
  for (const Term& t : ts) {
    if (t.coeff == INT64_MIN) return sym::intern(op, {a, b});
    if (!t.mono.is_const()) put(t.coeff / g, t.mono);
  }
  if (c == INT64_MIN) return sym::intern(op, {a, b});
  // The constant stands alone where one side has nothing else: s <= 512, -3 < s - t.
  if (c != 0) {
    int64_t signed_c = flip ? -c : c;
    if (right.empty())
      right.push_back({-signed_c, 1});
    else if (left.empty())
      left.push_back({signed_c, 1});
    else if (signed_c > 0)
      left.push_back({signed_c, 1});
    else
      right.push_back({-signed_c, 1});
  }
  return sym::intern(op, {*sym::sum(std::move(left)), *sym::sum(std::move(right))});
}

SymExpr logical(const SymExpr& e) { return sym::is_boolean(e) ? e : sym_ne(e, 0); }

SymExpr connective(SymOp op, const SymExpr& a, const SymExpr& b) {
  const int64_t absorbing = op == SymOp::Or;
  std::vector<SymExpr> xs = flat_sorted(op, logical(a), logical(b)), kept;
  for (const SymExpr& x : xs) {
    if (x.is_const(absorbing)) return x;
    if (x.is_const()) continue;
    if (std::binary_search(xs.begin(), xs.end(), sym_not(x))) return absorbing;
    kept.push_back(x);
  }
  if (kept.empty()) return 1 - absorbing;
  return chain(op, kept);
}
} // namespace

SymExpr sym_min(const SymExpr& a, const SymExpr& b) { return extremum(SymOp::Min, a, b); }
SymExpr sym_max(const SymExpr& a, const SymExpr& b) { return extremum(SymOp::Max, a, b); }
SymExpr sym_eq(const SymExpr& a, const SymExpr& b) { return comparison(SymOp::Eq, a, b); }
SymExpr sym_ne(const SymExpr& a, const SymExpr& b) { return comparison(SymOp::Ne, a, b); }
SymExpr sym_lt(const SymExpr& a, const SymExpr& b) { return comparison(SymOp::Lt, a, b); }
SymExpr sym_le(const SymExpr& a, const SymExpr& b) { return comparison(SymOp::Le, a, b); }
SymExpr sym_and(const SymExpr& a, const SymExpr& b) { return connective(SymOp::And, a, b); }
SymExpr sym_or(const SymExpr& a, const SymExpr& b) { return connective(SymOp::Or, a, b); }

SymExpr sym_not(const SymExpr& a) {
  switch (a.op()) {
  case SymOp::Const: return a.const_value() == 0 ? 1 : 0;
  case SymOp::Eq: return sym_ne(a.args()[0], a.args()[1]);
  case SymOp::Ne: return sym_eq(a.args()[0], a.args()[1]);
  case SymOp::Lt: return sym_le(a.args()[1], a.args()[0]);
  case SymOp::Le: return sym_lt(a.args()[1], a.args()[0]);
  case SymOp::Not: return a.args()[0];
  default: break;
  }
  if (!sym::is_boolean(a)) return sym_eq(a, 0);
  return sym::intern(SymOp::Not, {a});
}

SymExpr sym_scaled(const SymExpr& a, double factor) {
  TESSERA_CHECK(std::isfinite(factor), "a factor of sizes is finite");
  if (factor == 0) return 0;
  if (factor == 1) return a;
  if (a.is_const())
    if (auto v = sym::scale(a.const_value(), factor)) return *v;
  return sym::intern(SymOp::Scaled, {a, SymExpr(std::bit_cast<int64_t>(factor))});
}

SymExpr sym_select(const SymExpr& condition, const SymExpr& a, const SymExpr& b) {
  SymExpr c = logical(condition);
  if (c.is_const()) return c.is_const(0) ? b : a;
  if (a == b) return a;
  if (c.op() == SymOp::Not) return sym_select(c.args()[0], b, a);
  if (a.is_const(1) && b.is_const(0)) return c;
  if (a.is_const(0) && b.is_const(1)) return sym_not(c);
  return sym::intern(SymOp::Select, {c, a, b});
}

} // namespace tessera
