// SymExpr: integer expressions over symbols, hash-consed, in a canonical form, so that equal polynomials are the same
// object, which lives as long as an expression refers to it.
//
// The idea. Every dimension, stride, offset, loop bound and guard in Tessera is a SymExpr. Construction canonicalizes:
// sums are flattened, products distributed over sums, terms sorted by a stable order, like terms gathered. So
// (b*s)*768 and 768*s*b are one node and comparing is comparing pointers. What construction may do needs no facts about
// the symbols; what does (range, divisibility, equalities found so far) lives in ShapeEnv (env.h) and
// ShapeEnv::simplify.
//
//   kind        canonical form                                                  example
//   Const       a 64-bit integer                                                12
//   Symbol      a name with an id of its own                                    s
//   Add         const + sum of coeff*monomial, at least two terms               s*t + 2*s + 1
//   Mul         coeff * product of non-Add, non-Const factors, sorted           2*b*s
//   FloorDiv    floor(a / b), divisor not 0; exact divisions of polynomials are carried out     (s+7)/8  printed
//   floordiv(s + 7, 8) Mod         a - b*floordiv(a,b): sign of the divisor                        mod(s, 8) Min, Max
//   two operands, sorted, flattened                                 min(s, 512) Eq Ne Lt Le logical, 0 or 1 (Gt, Ge are
//   swapped)                            le(s, 512) And Or Not  logical over 0/1 Select      select(c, a, b)
//   Scaled      floor of a times a number of f64, the product rounded as IEEE 754 does            scaled(s, 0.7)
//
// Arithmetic is exact in the mathematical sense for all sizes that an address space admits; evaluation reports overflow
// of int64 as an error. Floor division and modulus follow Python (ONNX's Mod with fmod=0), not C.
// Loop axes of fusion/ and codegen/ are symbols too (SymKind::Axis), with ranges [0, extent-1].
#pragma once
#include "base/result.h"
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera {

enum class SymOp : uint8_t {
  Const,
  Symbol,
  Add,
  Mul,
  FloorDiv,
  Mod,
  Min,
  Max,
  Eq,
  Ne,
  Lt,
  Le,
  And,
  Or,
  Not,
  Select,
  Scaled
};

// The owners of a node are the expressions that refer to it, in any thread.
struct SymOwners {
  static constexpr int32_t kForever = -1; // small constants: not counted
  mutable std::atomic<int32_t> count{1};
};
struct SymNode;

class SymExpr {
public:
  SymExpr(const SymExpr& other) noexcept : owners_(other.owners_) { retain(); }
  SymExpr(SymExpr&& other) noexcept : owners_(std::exchange(other.owners_, nullptr)) {}
  SymExpr& operator=(SymExpr other) noexcept {
    std::swap(owners_, other.owners_);
    return *this;
  }
  ~SymExpr() { release(); }
  SymExpr();              // the constant 0
  SymExpr(int64_t value); // NOLINT: implicit on purpose
  SymExpr(int value) : SymExpr(static_cast<int64_t>(value)) {}
  // A fresh symbol, distinct from every other one, even of the same name. Thread-safe.
  static SymExpr symbol(std::string_view name);

  [[nodiscard]] SymOp op() const;
  [[nodiscard]] bool is_const() const { return op() == SymOp::Const; }
  [[nodiscard]] bool is_symbol() const { return op() == SymOp::Symbol; }
  [[nodiscard]] bool is_const(int64_t v) const { return is_const() && const_value() == v; }
  [[nodiscard]] int64_t const_value() const; // of a Const
  [[nodiscard]] std::optional<int64_t> as_const() const;
  [[nodiscard]] const std::string& symbol_name() const; // of a Symbol
  [[nodiscard]] uint64_t symbol_id() const;             // of a Symbol; creation order
  // Add: terms (constant last); Mul: coefficient first when not 1, then factors; Scaled: a, and the bits of the factor.
  [[nodiscard]] std::span<const SymExpr> args() const;
  [[nodiscard]] double factor() const; // of a Scaled
  // Symbols in it, each once, ordered by id.
  [[nodiscard]] std::vector<SymExpr> symbols() const;
  [[nodiscard]] bool contains(const SymExpr& symbol) const;

  // linear_in(x): {a, b} with *this == a*x + b and neither a nor b containing x; nullopt if it is not linear in x.
  [[nodiscard]] std::optional<std::pair<SymExpr, SymExpr>> linear_in(const SymExpr& symbol) const;
  // Greatest positive constant that divides it for every value of the symbols, from structure alone (0 for the constant
  // 0).
  [[nodiscard]] int64_t known_divisor() const;

  [[nodiscard]] SymExpr substitute(const std::unordered_map<uint64_t, SymExpr>& by_symbol_id) const;
  // Value under an assignment. Error GuardFailed naming an unbound symbol, SizeOverflow on overflow, division by zero.
  [[nodiscard]] Result<int64_t> eval(const std::unordered_map<uint64_t, int64_t>& by_symbol_id) const;

  [[nodiscard]] std::string
  str() const; // infix, the syntax that parse_sym reads: "b*s + 2", "floordiv(s, 2)", "min(s, 512)"
  [[nodiscard]] uint64_t hash() const;

  friend bool operator==(const SymExpr& a, const SymExpr& b) { return a.owners_ == b.owners_; }
  // A stable total order (by structure, symbols by id): the same run to run.
  [[nodiscard]] static int compare(const SymExpr& a, const SymExpr& b);
  friend bool operator<(const SymExpr& a, const SymExpr& b) { return compare(a, b) < 0; }

  // Equal for equal expressions, as long as one of them lives.
  [[nodiscard]] const void* identity() const { return owners_; }
  [[nodiscard]] const SymNode* node() const; // in symbols
  explicit SymExpr(const SymNode* node);     // another owner of it
  static SymExpr adopt(const SymNode* node); // the owner that the node counts already

private:
  static void release_one(const SymOwners* owners);
  void retain() const {
    if (owners_ && owners_->count.load(std::memory_order_relaxed) != SymOwners::kForever)
      owners_->count.fetch_add(1, std::memory_order_relaxed);
  }
  void release() const {
    if (owners_ && owners_->count.load(std::memory_order_relaxed) != SymOwners::kForever) release_one(owners_);
  }
  const SymOwners* owners_;
};

[[nodiscard]] SymExpr operator+(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr operator-(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr operator-(const SymExpr& a);
[[nodiscard]] SymExpr operator*(const SymExpr& a, const SymExpr& b);
inline SymExpr& operator+=(SymExpr& a, const SymExpr& b) { return a = a + b; }
inline SymExpr& operator*=(SymExpr& a, const SymExpr& b) { return a = a * b; }
[[nodiscard]] SymExpr floordiv(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr ceildiv(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr mod(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr sym_min(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr sym_max(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr sym_eq(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr sym_ne(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr sym_lt(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr sym_le(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr sym_and(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr sym_or(const SymExpr& a, const SymExpr& b);
[[nodiscard]] SymExpr sym_not(const SymExpr& a);
[[nodiscard]] SymExpr sym_select(const SymExpr& c, const SymExpr& a, const SymExpr& b);
// floor(a * factor), the product being that of IEEE's f64: what Python's math.floor(a * factor) is. `factor` is finite.
[[nodiscard]] SymExpr sym_scaled(const SymExpr& a, double factor);
[[nodiscard]] SymExpr product(std::span<const SymExpr> factors);

// Reads what str() writes. Unknown names are looked up by the callback (which may create symbols). Error ParseError.
[[nodiscard]] Result<SymExpr> parse_sym(std::string_view text,
                                        const std::function<Result<SymExpr>(std::string_view)>& lookup);

using SymShape = std::vector<SymExpr>;
[[nodiscard]] std::string str(const SymShape& shape); // "[b, s, 768]"
// Row-major strides of a contiguous array of this shape.
[[nodiscard]] std::vector<SymExpr> contiguous_strides(const SymShape& shape);

} // namespace tessera

template <>
struct std::hash<tessera::SymExpr> {
  size_t operator()(const tessera::SymExpr& e) const { return e.hash(); }
};
