// Questions about an expression, substitution and evaluation. Recursion is bounded by sym::kMaxDepth.
#include "symbols/node.h"
#include <algorithm>
#include <numeric>
#include <unordered_set>

namespace tessera {
namespace {
void collect(const SymNode* n, std::unordered_set<const SymNode*>& seen, std::vector<SymExpr>& out) {
  if (n->op == SymOp::Const || !seen.insert(n).second) return;
  if (n->op == SymOp::Symbol) out.push_back(SymExpr(n));
  for (const SymExpr& a : n->args) collect(a.node(), seen, out);
}

bool occurs(const SymNode* n, const SymNode* symbol, std::unordered_set<const SymNode*>& seen) {
  if (n == symbol) return true;
  if (n->args.empty() || (n->size > 32 && !seen.insert(n).second)) return false;
  return std::any_of(n->args.begin(), n->args.end(), [&](const SymExpr& a) { return occurs(a.node(), symbol, seen); });
}

int64_t gcd(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? uint64_t{0} - static_cast<uint64_t>(a) : static_cast<uint64_t>(a);
  uint64_t y = b < 0 ? uint64_t{0} - static_cast<uint64_t>(b) : static_cast<uint64_t>(b);
  uint64_t g = std::gcd(x, y);
  return g > static_cast<uint64_t>(INT64_MAX) ? 1 : static_cast<int64_t>(g);
}

using Memo = std::unordered_map<SymExpr, SymExpr>;
SymExpr substituted(const SymExpr& e, const std::unordered_map<uint64_t, SymExpr>& by, Memo& memo) {
  if (e.is_const()) return e;
  if (e.is_symbol()) {
    auto it = by.find(e.symbol_id());
    return it == by.end() ? e : it->second;
  }
  if (auto it = memo.find(e); it != memo.end()) return it->second;
  std::vector<SymExpr> args(e.args().begin(), e.args().end());
  bool changed = false;
  for (SymExpr& a : args) {
    SymExpr n = substituted(a, by, memo);
    changed |= n != a;
    a = n;
  }
  SymExpr r = changed ? sym::rebuild(e, args) : e;
  memo.emplace(e, r);
  return r;
}

struct Evaluator {
  const std::unordered_map<uint64_t, int64_t>& values;
  std::unordered_map<const SymNode*, int64_t> memo; // of large expressions only, whose parts may be shared

  Diagnostic overflow(const SymExpr& e) {
    return Diagnostic(ErrorCode::SizeOverflow, "the size " + text(e) + " exceeds 64 bits");
  }
  static std::string text(const SymExpr& e) {
    return e.node()->size > 200 ? "of an expression of " + std::to_string(e.node()->size) + " nodes" : e.str();
  }

  Result<int64_t> operator()(const SymExpr& e) {
    const SymNode* n = e.node();
    if (n->op == SymOp::Const) return n->value;
    if (n->op == SymOp::Symbol) {
      auto it = values.find(n->id);
      if (it == values.end())
        return Diagnostic(ErrorCode::GuardFailed, n->name == "too_complex"
                                                      ? std::string("a size is too complex to be computed")
                                                      : "the size '" + n->name + "' is not bound to a value");
      return it->second;
    }
    const bool remember = n->size > 64;
    if (remember)
      if (auto it = memo.find(n); it != memo.end()) return it->second;
    TESSERA_ASSIGN(int64_t v, compute(e, n));
    if (remember) memo.emplace(n, v);
    return v;
  }

  Result<int64_t> compute(const SymExpr& e, const SymNode* n) {
    switch (n->op) {
    case SymOp::Add: {
      __int128 total = 0;
      for (const SymExpr& a : n->args) {
        TESSERA_ASSIGN(int64_t v, (*this)(a));
        total += v;
      }
      if (total > INT64_MAX || total < INT64_MIN) return overflow(e);
      return static_cast<int64_t>(total);
    }
    case SymOp::Mul: {
      int64_t total = 1;
      bool zero = false, over = false;
      for (const SymExpr& a : n->args) {
        TESSERA_ASSIGN(int64_t v, (*this)(a));
        zero |= v == 0;
        over |= __builtin_mul_overflow(total, v, &total);
      }
      if (zero) return int64_t{0};
      if (over) return overflow(e);
      return total;
    }
    case SymOp::And:
    case SymOp::Or: {
      TESSERA_ASSIGN(int64_t a, (*this)(n->args[0]));
      if ((a != 0) == (n->op == SymOp::Or)) return int64_t{n->op == SymOp::Or};
      TESSERA_ASSIGN(int64_t b, (*this)(n->args[1]));
      return int64_t{b != 0};
    }
    case SymOp::Not: {
      TESSERA_ASSIGN(int64_t a, (*this)(n->args[0]));
      return int64_t{a == 0};
    }
    case SymOp::Select: {
      TESSERA_ASSIGN(int64_t c, (*this)(n->args[0]));
      return (*this)(n->args[c != 0 ? 1 : 2]);
    }
    default: break;
    }
    TESSERA_ASSIGN(int64_t a, (*this)(n->args[0]));
    TESSERA_ASSIGN(int64_t b, (*this)(n->args[1]));
    switch (n->op) {
    case SymOp::FloorDiv:
    case SymOp::Mod:
      if (b == 0) return Diagnostic(ErrorCode::ShapeMismatch, "division by zero in the size " + text(e));
      if (n->op == SymOp::Mod) return sym::floor_mod(a, b);
      if (b == -1 && a == INT64_MIN) return overflow(e);
      return sym::floor_div(a, b);
    case SymOp::Scaled: {
      auto v = sym::scale(a, e.factor());
      return v ? Result<int64_t>(*v) : Result<int64_t>(overflow(e));
    }
    case SymOp::Min: return std::min(a, b);
    case SymOp::Max: return std::max(a, b);
    case SymOp::Eq: return int64_t{a == b};
    case SymOp::Ne: return int64_t{a != b};
    case SymOp::Lt: return int64_t{a < b};
    case SymOp::Le: return int64_t{a <= b};
    default: TESSERA_UNREACHABLE("SymOp");
    }
  }
};
} // namespace

std::vector<SymExpr> SymExpr::symbols() const {
  std::vector<SymExpr> out;
  std::unordered_set<const SymNode*> seen;
  collect(node(), seen, out);
  std::sort(out.begin(), out.end(), [](const SymExpr& a, const SymExpr& b) { return a.node()->id < b.node()->id; });
  return out;
}

bool SymExpr::contains(const SymExpr& symbol) const {
  std::unordered_set<const SymNode*> seen;
  return occurs(node(), symbol.node(), seen);
}

std::optional<std::pair<SymExpr, SymExpr>> SymExpr::linear_in(const SymExpr& symbol) const {
  std::vector<sym::Term> with, without;
  for (const sym::Term& t : sym::terms(*this)) {
    if (!t.mono.contains(symbol)) {
      without.push_back(t);
      continue;
    }
    auto rest = sym::divide_monomial(t.mono, symbol);
    if (!rest || rest->contains(symbol)) return std::nullopt;
    with.push_back({t.coeff, *rest});
  }
  return std::pair{*sym::sum(std::move(with)), *sym::sum(std::move(without))};
}

int64_t SymExpr::known_divisor() const {
  switch (op()) {
  case SymOp::Const: return gcd(const_value(), 0);
  case SymOp::Mul: {
    int64_t d = 1;
    for (const SymExpr& a : args())
      if (__builtin_mul_overflow(d, a.known_divisor(), &d)) return 1;
    return d;
  }
  case SymOp::Add:
  case SymOp::Mod:
  case SymOp::Min:
  case SymOp::Max:
    return std::accumulate(args().begin(), args().end(), int64_t{0},
                           [](int64_t g, const SymExpr& a) { return gcd(g, a.known_divisor()); });
  case SymOp::Select: return gcd(args()[1].known_divisor(), args()[2].known_divisor());
  default: return 1;
  }
}

SymExpr SymExpr::substitute(const std::unordered_map<uint64_t, SymExpr>& by_symbol_id) const {
  if (by_symbol_id.empty()) return *this;
  Memo memo;
  return substituted(*this, by_symbol_id, memo);
}

Result<int64_t> SymExpr::eval(const std::unordered_map<uint64_t, int64_t>& by_symbol_id) const {
  return Evaluator{by_symbol_id, {}}(*this);
}

std::vector<SymExpr> contiguous_strides(const SymShape& shape) {
  std::vector<SymExpr> strides(shape.size(), SymExpr(1));
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

} // namespace tessera
