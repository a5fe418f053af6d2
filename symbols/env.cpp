#include "symbols/env.h"
#include "symbols/reasoner.h"
#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera {

using Lock = std::lock_guard<std::recursive_mutex>;

ShapeEnv::ShapeEnv() = default;
ShapeEnv::ShapeEnv(const ShapeEnv&) = default;
ShapeEnv::ShapeEnv(ShapeEnv&&) noexcept = default;
ShapeEnv& ShapeEnv::operator=(const ShapeEnv&) = default;
ShapeEnv& ShapeEnv::operator=(ShapeEnv&&) noexcept = default;
ShapeEnv::~ShapeEnv() = default;

SymExpr ShapeEnv::create_symbol(std::string_view name, SymRange range, int64_t divisor) {
  std::string unique(name);
  for (int n = 1; by_name_.contains(unique); ++n) unique = std::string(name) + "_" + std::to_string(n);
  SymExpr s = SymExpr::symbol(unique);
  Facts& f = facts_of(s);
  if (auto hint = hints_.find(unique); hint != hints_.end()) f.hint = std::clamp(hint->second, -kReadMax, kReadMax);
  by_name_.emplace(std::move(unique), s);
  order_.push_back(s);
  f.range = range;
  f.divisor = std::max<int64_t>(divisor, 1);
  return s;
}

SymExpr ShapeEnv::named_symbol(const std::string& name, SymRange range) {
  auto it = by_name_.find(name);
  return it != by_name_.end() ? it->second : create_symbol(name, range);
}

std::optional<SymExpr> ShapeEnv::find(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? std::nullopt : std::optional<SymExpr>(it->second);
}

ShapeEnv::Facts& ShapeEnv::facts_of(const SymExpr& symbol) {
  Lock lock(memo_.mutex);
  if (symbol.symbol_id() <= memo_.newest) memo_.clear();
  return facts_[symbol.symbol_id()];
}

void ShapeEnv::narrow(const SymExpr& symbol, SymRange range) {
  const bool known = facts_.contains(symbol.symbol_id());
  Facts& f = facts_of(symbol);
  if (!known)
    f.range = range;
  else {
    f.assumed |= assuming_ && (range.lo > f.range.lo || range.hi < f.range.hi);
    f.range = {std::max(f.range.lo, range.lo), std::min(f.range.hi, range.hi)};
  }
  if (f.range.lo > f.range.hi) f.range.hi = f.range.lo;
}

void ShapeEnv::set_range(const SymExpr& symbol, SymRange range) { narrow(symbol, range); }

void ShapeEnv::set_divisor(const SymExpr& symbol, int64_t divisor) {
  if (divisor <= 1) return;
  Facts& f = facts_of(symbol);
  f.assumed |= assuming_ && f.divisor % divisor != 0;
  int64_t g = std::gcd(f.divisor, divisor), both;
  if (!__builtin_mul_overflow(f.divisor, divisor / g, &both)) f.divisor = both;
}

void ShapeEnv::set_axis(const SymExpr& var, const SymExpr& extent) {
  narrow(var, {0, sym::kHuge});
  facts_of(var).extent = extent;
}

void ShapeEnv::set_hint(const SymExpr& symbol, int64_t value) { facts_of(symbol).hint = value; }

std::optional<int64_t> ShapeEnv::hint(const SymExpr& e) const {
  std::unordered_map<uint64_t, int64_t> values;
  for (const SymExpr& s : e.symbols()) {
    auto it = facts_.find(s.symbol_id());
    std::optional<int64_t> v = it == facts_.end() ? std::nullopt : it->second.hint;
    if (!v) {
      auto by = substitution_.find(s.symbol_id());
      if (by != substitution_.end()) v = hint(by->second);
    }
    if (!v) return std::nullopt;
    values.emplace(s.symbol_id(), *v);
  }
  auto r = e.eval(values);
  return r.ok() ? std::optional<int64_t>(*r) : std::nullopt;
}

SymRange ShapeEnv::range(const SymExpr& e) const {
  Lock lock(memo_.mutex);
  Reasoner r{*this};
  return r.range(r.simplify(e));
}
int64_t ShapeEnv::divisor(const SymExpr& e) const {
  Lock lock(memo_.mutex);
  Reasoner r{*this};
  return r.divisor(r.simplify(e));
}
SymExpr ShapeEnv::simplify(const SymExpr& e) const {
  if (e.is_const()) return e;
  Lock lock(memo_.mutex);
  return Reasoner{*this}.simplify(e);
}
SymShape ShapeEnv::simplify(const SymShape& shape) const {
  SymShape out;
  out.reserve(shape.size());
  for (const SymExpr& e : shape) out.push_back(simplify(e));
  return out;
}

std::optional<bool> ShapeEnv::prove(const SymExpr& condition) const {
  if (condition.is_const()) return !condition.is_const(0);
  Lock lock(memo_.mutex);
  Reasoner reason{*this};
  SymRange r = reason.range(reason.simplify(condition));
  if (r.lo > 0 || r.hi < 0) return true;
  if (r.lo == 0 && r.hi == 0) return false;
  return std::nullopt;
}
bool ShapeEnv::known_equal(const SymExpr& a, const SymExpr& b) const { return a == b || simplify(a - b).is_const(0); }

// ---- learning -------------------------------------------------------------------------------------------------------

Status ShapeEnv::require(const SymExpr& condition, GuardClass cls, std::string reason, const Location& where) {
  const SymExpr c = simplify(condition);
  if (c.is_const() && !c.is_const(0)) return {};
  auto refuse = [&](std::string what) {
    Diagnostic d(ErrorCode::ShapeMismatch, where, reason + ": " + std::move(what));
    if (!condition.is_const()) d.note("it needs " + condition.str());
    return d;
  };
  if (c.is_const(0)) return refuse("this can never hold");
  if (cls == GuardClass::Required) {
    if (std::optional<int64_t> h = hint(condition); h && *h == 0) {
      std::string sizes;
      for (const SymExpr& s : condition.symbols())
        if (auto v = hint(s)) sizes += (sizes.empty() ? "" : ", ") + s.symbol_name() + " = " + std::to_string(*v);
      return refuse("this does not hold for " + sizes);
    }
  }
  add_guard({c, cls, std::move(reason), where});
  return {};
}

Result<bool> ShapeEnv::decide(const SymExpr& condition, bool otherwise, std::string reason, const Location& where) {
  if (auto known = prove(condition)) return *known;
  const auto hinted = hint(condition);
  const bool holds = hinted ? *hinted != 0 : otherwise;
  TESSERA_TRY(require(holds ? condition : sym_not(condition), GuardClass::Assumed, std::move(reason), where));
  return holds;
}

Status ShapeEnv::require_equal(const SymExpr& a, const SymExpr& b, std::string reason, const Location& where) {
  if (known_equal(a, b)) return {};
  if (simplify(sym_eq(a, b)).is_const(0))
    return Diagnostic(ErrorCode::ShapeMismatch, where,
                      reason + ": " + simplify(a).str() + " and " + simplify(b).str() + " differ");
  return require(sym_eq(a, b), GuardClass::Required, std::move(reason), where);
}

void ShapeEnv::add_guard(Guard guard) {
  SymExpr c = simplify(guard.condition);
  guards_.push_back(std::move(guard));
  if (c.is_const()) return;
  Lock lock(memo_.mutex);
  assuming_ = guards_.back().cls == GuardClass::Assumed;
  learn(c);
  assuming_ = false;
}

GuardClass ShapeEnv::fact_class(const SymExpr& symbol) const {
  for (const SymExpr& s : simplify(symbol).symbols())
    if (auto f = facts_.find(s.symbol_id()); f != facts_.end() && f->second.assumed) return GuardClass::Assumed;
  return GuardClass::Required;
}

void ShapeEnv::learn(const SymExpr& c) {
  if (c.op() == SymOp::And) {
    for (const SymExpr& part : c.args()) learn(part);
    return;
  }
  memo_.clear();
  holds_.insert(c);
  if (c.op() != SymOp::Eq && c.op() != SymOp::Ne && c.op() != SymOp::Lt && c.op() != SymOp::Le) return;
  const SymExpr &a = c.args()[0], &b = c.args()[1];
  const SymExpr d = a - b;
  if (d.node()->opaque) return;
  const int64_t k = sym::constant_part(d);
  const SymExpr x = d - k;
  switch (c.op()) {
  case SymOp::Eq: {
    const SymExpr& m = a.op() == SymOp::Mod ? a : b;
    const SymExpr& zero = a.op() == SymOp::Mod ? b : a;
    if (m.op() == SymOp::Mod && zero.is_const(0) && m.args()[0].is_symbol() && m.args()[1].is_const())
      set_divisor(m.args()[0], m.args()[1].const_value());
    learn_equal(d);
    break;
  }
  case SymOp::Ne: // at an end of what is possible
    if (x.is_symbol() || x == -SymExpr(x.symbols().empty() ? SymExpr(0) : x.symbols()[0])) {
      SymExpr s = x.symbols()[0];
      int64_t v = x.is_symbol() ? -k : k;
      SymRange r = range(s);
      if (v == r.lo)
        learn_bound(s, {v + 1, sym::kHuge});
      else if (v == r.hi)
        learn_bound(s, {-sym::kHuge, v - 1});
    }
    break;
  default: // x + k <= 0, or < 0
    learn_bound(x, {-sym::kHuge, sym::saturate(-static_cast<__int128>(k) - (c.op() == SymOp::Lt))});
  }
}

void ShapeEnv::learn_bound(const SymExpr& e, SymRange r) {
  if (e.is_const()) return;
  memo_.clear();
  SymExpr x = e;
  if (sym::terms(e)[0].coeff < 0) {
    x = -e;
    r = {-r.hi, -r.lo};
  }
  if (x.is_symbol()) return narrow(x, r);
  auto [it, fresh] = bounds_.emplace(x, r);
  if (!fresh) it->second = {std::max(it->second.lo, r.lo), std::min(it->second.hi, r.hi)};
}

// difference == 0: the newest symbol that it can be solved for goes.
void ShapeEnv::learn_equal(const SymExpr& difference) {
  std::vector<SymExpr> all = difference.symbols();
  for (auto s = all.rbegin(); s != all.rend(); ++s) {
    auto f = facts_.find(s->symbol_id());
    if (f == facts_.end() || f->second.extent) continue;
    auto linear = difference.linear_in(*s);
    if (!linear || (!linear->first.is_const(1) && !linear->first.is_const(-1))) continue;
    SymExpr by = linear->first.is_const(1) ? -linear->second : linear->second;
    if (by.node()->opaque) continue;
    return replace(*s, by);
  }
  const int64_t k = sym::constant_part(difference);
  if (k != INT64_MIN) learn_bound(difference - k, {-k, -k});
}

void ShapeEnv::replace(const SymExpr& symbol, const SymExpr& by) {
  const Facts old = facts_[symbol.symbol_id()];
  memo_.clear();
  const bool assuming = std::exchange(assuming_, assuming_ || old.assumed);
  if (!by.is_const()) {
    const int64_t c = sym::constant_part(by);
    auto shift = [c](int64_t v) { return sym::saturate(static_cast<__int128>(v) - c); };
    learn_bound(by - c, {shift(old.range.lo), shift(old.range.hi)});
    if (by.is_symbol()) {
      set_divisor(by, old.divisor);
      if (Facts& f = facts_[by.symbol_id()]; !f.hint) f.hint = old.hint;
    }
  }
  const std::unordered_map<uint64_t, SymExpr> one{{symbol.symbol_id(), by}};
  for (auto& [id, e] : substitution_) e = e.substitute(one);
  substitution_.emplace(symbol.symbol_id(), by);
  // Bounds of expressions that contain the symbol hold for the expressions that they became.
  std::unordered_map<SymExpr, SymRange> bounds;
  bounds.swap(bounds_);
  for (const auto& [e, r] : bounds) {
    if (!e.contains(symbol)) {
      bounds_.insert_or_assign(e, r);
      continue;
    }
    SymExpr n = e.substitute(one);
    int64_t c = sym::constant_part(n);
    learn_bound(n - c,
                {sym::saturate(static_cast<__int128>(r.lo) - c), sym::saturate(static_cast<__int128>(r.hi) - c)});
  }
  std::unordered_set<SymExpr> holds;
  for (const SymExpr& e : holds_) holds.insert(e.substitute(one));
  holds_ = std::move(holds);
  assuming_ = assuming;
  memo_.clear();
}

// ---- broadcasting ---------------------------------------------------------------------------------------------------

Result<SymExpr> ShapeEnv::broadcast(const SymExpr& a, const SymExpr& b, const Location& where) {
  SymExpr x = simplify(a), y = simplify(b);
  if (x == y || y.is_const(1)) return x;
  if (x.is_const(1)) return y;
  auto not_one = [&](const SymExpr& e) { return prove(sym_ne(e, 1)) == true; };
  const bool x_wide = not_one(x), y_wide = not_one(y);
  const bool differ = simplify(sym_eq(x, y)).is_const(0);
  if (differ && x_wide && y_wide)
    return Diagnostic(ErrorCode::ShapeMismatch, where,
                      "cannot broadcast: dimensions " + x.str() + " and " + y.str() + " differ, and neither is 1");
  const std::string names = x.str() + " with " + y.str();
  std::optional<int64_t> hx = hint(x), hy = hint(y);
  // A size that cannot become as large as the other one is 1.
  if (!hx && hy && *hy > 1 && range(x).hi < *hy) hx = 1;
  if (!hy && hx && *hx > 1 && range(y).hi < *hx) hy = 1;
  // One of them is 1 for the sizes at hand (or can be nothing else): compiled code relies on it.
  auto one = [&](const SymExpr& narrow_dim, const SymExpr& wide) -> Result<SymExpr> {
    TESSERA_TRY(require(sym_eq(narrow_dim, 1), GuardClass::Assumed, "broadcast of " + names, where));
    return simplify(wide);
  };
  const bool hinted_equal = !hx || !hy || *hx == *hy;
  if (!x_wide && (differ ? y_wide || (hx && *hx == 1) || !hy || *hy != 1 : hx == 1 && !hinted_equal)) return one(x, y);
  if (!y_wide && (differ || (hy == 1 && !hinted_equal))) return one(y, x);
  if (!hinted_equal)
    return Diagnostic(ErrorCode::ShapeMismatch, where,
                      "cannot broadcast " + names + ": they are " + std::to_string(*hx) + " and " +
                          std::to_string(*hy));
  const GuardClass cls = x_wide && y_wide ? GuardClass::Required : GuardClass::Assumed;
  TESSERA_TRY(require(sym_eq(x, y), cls, "broadcast of " + names, where));
  return simplify(x);
}

Result<SymShape> ShapeEnv::broadcast(const SymShape& a, const SymShape& b, const Location& where) {
  const SymShape &longer = a.size() >= b.size() ? a : b, &shorter = a.size() >= b.size() ? b : a;
  SymShape out = longer;
  const size_t skip = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    auto d = broadcast(longer[skip + i], shorter[i], where);
    if (!d.ok()) return std::move(d).take_error().note("the shapes are " + tessera::str(a) + " and " + tessera::str(b));
    out[skip + i] = *d;
  }
  return simplify(out);
}

ShapeEnv ShapeEnv::inner() const {
  ShapeEnv copy = *this;
  copy.guards_.clear();
  return copy;
}

std::string ShapeEnv::str() const {
  std::string out;
  for (const SymExpr& s : order_) {
    const Facts& f = facts_.at(s.symbol_id());
    out += (out.empty() ? "" : ", ") + s.str() + " in [" + std::to_string(f.range.lo) + ", " +
           (f.range.hi >= kSymMax ? "?" : std::to_string(f.range.hi)) + "]";
    if (f.divisor > 1) out += " div " + std::to_string(f.divisor);
  }
  for (size_t i = 0; i < guards_.size(); ++i)
    out += (i ? ", " : "; ") + std::string(guards_[i].cls == GuardClass::Required ? "require " : "assume ") +
           guards_[i].condition.str();
  return out;
}

} // namespace tessera
