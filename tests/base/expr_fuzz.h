// Random size expressions built twice: as a plain tree, whose value is computed as written, and as a SymExpr.
#pragma once
#include "symbols/expr.h"
#include <cmath>
#include <cstdlib>
#include <random>

namespace tessera::fuzz {

// Seed of a fuzz test: a fixed one, moved by TESSERA_FUZZ_SEED for longer campaigns.
inline unsigned seed(unsigned fixed) {
  const char* text = std::getenv("TESSERA_FUZZ_SEED");
  return fixed + (text ? static_cast<unsigned>(std::atoi(text)) * 1000u : 0u);
}

struct Tree {
  SymOp op = SymOp::Const;
  int64_t value = 0; // Const; Scaled: the factor in thirtieths
  size_t symbol = 0; // Symbol: position in the generator's list
  std::vector<Tree> kids;

  // The value as written; nullopt where a division by zero occurs anywhere (identities may remove one, none may add
  // one).
  [[nodiscard]] std::optional<int64_t> eval(const std::vector<int64_t>& values) const {
    std::vector<int64_t> k;
    for (const Tree& t : kids) {
      auto v = t.eval(values);
      if (!v || *v > (int64_t{1} << 50) || *v < -(int64_t{1} << 50)) return std::nullopt;
      k.push_back(*v);
    }
    switch (op) {
    case SymOp::Const: return value;
    case SymOp::Symbol: return values[symbol];
    case SymOp::Add: return k[0] + k[1];
    case SymOp::Mul: {
      int64_t r;
      if (__builtin_mul_overflow(k[0], k[1], &r)) return std::nullopt;
      return r;
    }
    case SymOp::FloorDiv:
    case SymOp::Mod: {
      if (k[1] == 0) return std::nullopt;
      int64_t q = k[0] / k[1];
      if (q * k[1] != k[0] && (k[0] < 0) != (k[1] < 0)) --q;
      return op == SymOp::FloorDiv ? q : k[0] - q * k[1];
    }
    case SymOp::Min: return k[0] < k[1] ? k[0] : k[1];
    case SymOp::Max: return k[0] < k[1] ? k[1] : k[0];
    case SymOp::Eq: return k[0] == k[1];
    case SymOp::Ne: return k[0] != k[1];
    case SymOp::Lt: return k[0] < k[1];
    case SymOp::Le: return k[0] <= k[1];
    case SymOp::And: return k[0] != 0 && k[1] != 0;
    case SymOp::Or: return k[0] != 0 || k[1] != 0;
    case SymOp::Not: return k[0] == 0;
    case SymOp::Select: return k[0] != 0 ? k[1] : k[2];
    case SymOp::Scaled: return static_cast<int64_t>(std::floor(static_cast<double>(k[0]) * factor()));
    }
    return std::nullopt;
  }

  [[nodiscard]] SymExpr build(const std::vector<SymExpr>& symbols) const {
    std::vector<SymExpr> k;
    for (const Tree& t : kids) k.push_back(t.build(symbols));
    switch (op) {
    case SymOp::Const: return value;
    case SymOp::Symbol: return symbols[symbol];
    case SymOp::Add: return k[0] + k[1];
    case SymOp::Mul: return k[0] * k[1];
    case SymOp::FloorDiv: return floordiv(k[0], k[1]);
    case SymOp::Mod: return mod(k[0], k[1]);
    case SymOp::Min: return sym_min(k[0], k[1]);
    case SymOp::Max: return sym_max(k[0], k[1]);
    case SymOp::Eq: return sym_eq(k[0], k[1]);
    case SymOp::Ne: return sym_ne(k[0], k[1]);
    case SymOp::Lt: return sym_lt(k[0], k[1]);
    case SymOp::Le: return sym_le(k[0], k[1]);
    case SymOp::And: return sym_and(k[0], k[1]);
    case SymOp::Or: return sym_or(k[0], k[1]);
    case SymOp::Not: return sym_not(k[0]);
    case SymOp::Select: return sym_select(k[0], k[1], k[2]);
    case SymOp::Scaled: return sym_scaled(k[0], factor());
    }
    return 0;
  }

  [[nodiscard]] std::string str(const std::vector<SymExpr>& symbols) const {
    static constexpr const char* kNames[] = {"",   "",   "add", "mul", "floordiv", "mod", "min",    "max",   "eq",
                                             "ne", "lt", "le",  "and", "or",       "not", "select", "scaled"};
    if (op == SymOp::Const) return std::to_string(value);
    if (op == SymOp::Symbol) return symbols[symbol].str();
    std::string out = std::string(kNames[static_cast<int>(op)]) + "(";
    for (size_t i = 0; i < kids.size(); ++i) out += (i ? ", " : "") + kids[i].str(symbols);
    if (op == SymOp::Scaled) out += ", " + std::to_string(value) + "/30";
    return out + ")";
  }
  [[nodiscard]] double factor() const { return static_cast<double>(value) / 30; }
};

// Mostly what shapes and indices are made of: sums, products, divisions by a few constants and by symbols.
inline Tree random_tree(std::mt19937& rng, size_t symbols, int depth) {
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  static constexpr int64_t kConstants[] = {0, 1, 2, 3, 4, 8, 12, 64, 768, -1, -2, 5, 7, -8};
  Tree t;
  if (depth == 0 || pick(6) == 0) {
    if (pick(3) == 0)
      t.value = kConstants[pick(14)];
    else
      t.op = SymOp::Symbol, t.symbol = rng() % symbols;
    return t;
  }
  static constexpr SymOp kOps[] = {SymOp::Add,      SymOp::Add,      SymOp::Add, SymOp::Mul,    SymOp::Mul,
                                   SymOp::FloorDiv, SymOp::FloorDiv, SymOp::Mod, SymOp::Mod,    SymOp::Min,
                                   SymOp::Max,      SymOp::Eq,       SymOp::Ne,  SymOp::Lt,     SymOp::Le,
                                   SymOp::And,      SymOp::Or,       SymOp::Not, SymOp::Select, SymOp::Scaled};
  t.op = kOps[pick(20)];
  if (t.op == SymOp::Scaled) t.value = pick(120) - 40;
  const size_t arity = t.op == SymOp::Not || t.op == SymOp::Scaled ? 1 : t.op == SymOp::Select ? 3 : 2;
  for (size_t i = 0; i < arity; ++i) t.kids.push_back(random_tree(rng, symbols, depth - 1));
  if ((t.op == SymOp::FloorDiv || t.op == SymOp::Mod) && pick(2) == 0) {
    t.kids[1] = Tree{};
    t.kids[1].value = kConstants[1 + pick(8)];
  }
  return t;
}

// The smallest part of `t` for which `fails` holds, for the message.
template <class F>
const Tree& smallest_failing(const Tree& t, F fails) {
  for (const Tree& k : t.kids)
    if (fails(k)) return smallest_failing(k, fails);
  return t;
}

} // namespace tessera::fuzz
