// The nodes behind SymExpr, and the view of an expression as a polynomial that construction and ShapeEnv share. Private
// to symbols.
#pragma once
#include "symbols/expr.h"

namespace tessera {

struct SymNode : SymOwners {
  SymNode() = default;
  SymNode(SymNode&& other) noexcept
      : SymOwners(), op(other.op), opaque(other.opaque), value(other.value), id(other.id), hash(other.hash),
        depth(other.depth), size(other.size), name(std::move(other.name)), args(std::move(other.args)) {}
  SymOp op = SymOp::Const;
  // Arithmetic that does not fit 64 bits, or a product that would have too many terms: kept as written, never taken
  // apart.
  bool opaque = false;
  int64_t value = 0;  // Const: the value. Mul: the coefficient, args[0] when it is not 1
  uint64_t id = 0;    // Symbol
  uint64_t hash = 0;  // of the structure, without addresses
  uint32_t depth = 0; // of nesting
  uint32_t size = 1;  // nodes of the tree, saturating
  std::string name;   // Symbol
  std::vector<SymExpr> args;
};
inline const SymNode* SymExpr::node() const { return static_cast<const SymNode*>(owners_); }

namespace sym {

// The node of that structure: one object for equal ones. Expressions nested or grown beyond any use become a fresh
// symbol that nothing binds, so that recursion over expressions is bounded; evaluating it is an error.
[[nodiscard]] SymExpr intern(SymOp op, std::vector<SymExpr> args, bool opaque = false);
[[nodiscard]] size_t interned(); // nodes that live
inline constexpr uint32_t kMaxDepth = 200, kMaxSize = 20000;

// An expression as sum of coeff * monomial; the monomial is 1 (a Const), an atom, or a Mul of atoms without a
// coefficient.
struct Term {
  int64_t coeff;
  SymExpr mono;
};
[[nodiscard]] std::vector<Term> terms(const SymExpr& e);
// Sum of terms in any order, like ones gathered; nullopt on overflow of a coefficient.
[[nodiscard]] std::optional<SymExpr> sum(std::vector<Term> terms);
[[nodiscard]] SymExpr term(int64_t coeff, const SymExpr& mono); // coeff * mono
// Atoms of a monomial, sorted; none for 1.
[[nodiscard]] std::span<const SymExpr> factors(const SymExpr& mono);
[[nodiscard]] SymExpr monomial(std::vector<SymExpr> sorted_factors);
// mono / by when `by`'s factors are among mono's.
[[nodiscard]] std::optional<SymExpr> divide_monomial(const SymExpr& mono, const SymExpr& by);
[[nodiscard]] SymExpr common_monomial(const SymExpr& a, const SymExpr& b);
// Quotient of polynomials when the division leaves nothing.
[[nodiscard]] std::optional<SymExpr> exact_divide(const SymExpr& a, const SymExpr& b);
// {q, r} with a == q*b + r, every term that b divides moved into q. b is not 0.
struct Split {
  SymExpr quotient, rest;
};
[[nodiscard]] Split split(const SymExpr& a, const SymExpr& b);
[[nodiscard]] int64_t constant_part(const SymExpr& e); // the Const among its terms
// Always 0 or 1.
[[nodiscard]] bool is_boolean(const SymExpr& e);
// Through the constructor of an operator, which has as many arguments as it takes.
[[nodiscard]] SymExpr make(SymOp op, std::span<const SymExpr> args);
// The node with simplified arguments put through the constructor of its operator.
[[nodiscard]] SymExpr rebuild(const SymExpr& e, std::span<const SymExpr> args);

[[nodiscard]] int64_t floor_div(int64_t a, int64_t b); // b is not 0, and not -1 for the smallest a
[[nodiscard]] int64_t floor_mod(int64_t a, int64_t b);
[[nodiscard]] int64_t saturate(__int128 v); // to +-2^62
// floor(a * factor) in f64; nullopt beyond +-2^62.
[[nodiscard]] std::optional<int64_t> scale(int64_t a, double factor);
inline constexpr int64_t kHuge = int64_t{1} << 62;

} // namespace sym
} // namespace tessera
