// ShapeEnv: what is known about the symbols of one graph, and what was assumed.
//
// A symbol has a range and a divisor. Importing and inference query it ("are these two dimensions equal?"). When
// the answer follows from what is known, nothing is recorded. When it does not, the environment may assume it: it adds
// a guard, with the place and the reason, and from then on it is known. Two classes of guards:
//   Required   the model has no meaning otherwise (two dimensions added together differ and neither is 1; a position
//              table has 512 rows). A call that violates it is an error of the input: ErrorCode::GuardFailed.
//   Assumed    compiled code relies on it (dimension 2 is not 1, sizes agree where broadcasting was possible, divisible
//              by 8). A call that violates it is a guard miss: another variant is compiled, or the generic one runs.
// Hints: the concrete sizes of the call that led to this compilation, when there is one; they decide which way an
// assumption goes. Without hints a dynamic dimension is taken to be different from 1 and equal to the other dimension.
#pragma once
#include "symbols/expr.h"
#include <map>
#include <mutex>
#include <unordered_set>

namespace tessera {

//
// Loop axes are symbols too. set_axis(var, extent) says 0 <= var < extent, where the extent is an expression: with i <
// b, j < s, k < 768 the environment knows that floordiv(i*s*768 + j*768 + k, 768) is i*s + j and that mod(i*s + j, s)
// is j. An axis whose extent can be 0 has no points then, so nothing that is said about it can be wrong.
//
// Facts are about the symbols that an environment knows; any other symbol is any integer.
// Reading (const) is safe from several threads. Results are memoized until a fact changes.

inline constexpr int64_t kSymMax = int64_t{1} << 40; // upper bound of an unbounded dimension

// Integers that are read from data are bound within +-kReadMax: what is beyond is as far as that for every size.
inline constexpr int64_t kReadMax = int64_t{1} << 61;

struct SymRange {
  int64_t lo = 0, hi = kSymMax; // inclusive
  bool operator==(const SymRange&) const = default;
};

enum class GuardClass : uint8_t { Required, Assumed };

struct Guard {
  SymExpr condition; // over symbols; holds when it evaluates to non-zero
  GuardClass cls = GuardClass::Assumed;
  std::string reason; // "broadcast of b1 with b", "rows are a multiple of 8: 16-byte accesses"
  Location where;     // node that needed it
};

class ShapeEnv {
public:
  ShapeEnv();
  ShapeEnv(const ShapeEnv&);
  ShapeEnv(ShapeEnv&&) noexcept;
  ShapeEnv& operator=(const ShapeEnv&);
  ShapeEnv& operator=(ShapeEnv&&) noexcept;
  ~ShapeEnv();
  // A new symbol with facts. `name` is made unique within the environment by a suffix when needed.
  SymExpr create_symbol(std::string_view name, SymRange range = {}, int64_t divisor = 1);
  // The symbol of that name, created when it does not exist: same dim_param, same symbol.
  SymExpr named_symbol(const std::string& name, SymRange range = {});
  // Registers an existing symbol (loop axes) with facts, or narrows those it has.
  void set_range(const SymExpr& symbol, SymRange range);
  void set_divisor(const SymExpr& symbol, int64_t divisor);
  // 0 <= var < extent. `var` need not be one of this environment's symbols and does not become one (symbols(), str()).
  void set_axis(const SymExpr& var, const SymExpr& extent);
  [[nodiscard]] const std::vector<SymExpr>& symbols() const { return order_; } // in creation order
  [[nodiscard]] std::optional<SymExpr> find(std::string_view name) const;

  void set_hint(const SymExpr& symbol, int64_t value);
  [[nodiscard]] std::optional<int64_t> hint(const SymExpr& e) const; // all symbols hinted -> value

  // Facts, from ranges, divisors, substitutions and guards so far.
  [[nodiscard]] SymRange range(const SymExpr& e) const;  // interval arithmetic, saturating at +-2^62
  [[nodiscard]] int64_t divisor(const SymExpr& e) const; // a constant that divides e always
  // Canonical form under the facts: equalities substituted, min/max/floordiv/mod/select/comparisons decided where
  // ranges and divisors decide them: mod(i*768 + j, 768) with 0 <= j < 768 is j. Idempotent.
  [[nodiscard]] SymExpr simplify(const SymExpr& e) const;
  [[nodiscard]] SymShape simplify(const SymShape& shape) const;

  // Decides a condition: true, false or unknown. Never adds a guard.
  [[nodiscard]] std::optional<bool> prove(const SymExpr& condition) const;
  [[nodiscard]] bool known_equal(const SymExpr& a, const SymExpr& b) const;

  // Makes `condition` hold from now on, adding a guard unless it is known; equalities become substitutions, comparisons
  // narrow ranges. Error ShapeMismatch when it is known to be false (or false under the hints when cls is Required).
  [[nodiscard]] Status require(const SymExpr& condition, GuardClass cls, std::string reason, const Location& where);
  // Which way a condition goes: as is known, else as the hints say, else `otherwise`. What was not known is assumed.
  [[nodiscard]] Result<bool> decide(const SymExpr& condition, bool otherwise, std::string reason,
                                    const Location& where);
  // Whether the range and the divisor of a symbol are narrower by an assumption than what is declared or required.
  [[nodiscard]] GuardClass fact_class(const SymExpr& symbol) const;
  // A symbol that nothing binds stands for an expression from now on.
  void define(const SymExpr& symbol, const SymExpr& by) { replace(symbol, by); }
  // Hints of symbols that are created later, by name; whether values without one may be guessed.
  void set_hints(std::map<std::string, int64_t> hints, bool may_guess) {
    hints_ = std::move(hints);
    may_guess_ = may_guess;
  }
  [[nodiscard]] bool may_guess() const { return may_guess_; }
  // a and b must be the same dimension (Required).
  [[nodiscard]] Status require_equal(const SymExpr& a, const SymExpr& b, std::string reason, const Location& where);
  // Numpy broadcasting of two dimensions; may add an Assumed guard (equal, or one of them 1, as the hints say).
  [[nodiscard]] Result<SymExpr> broadcast(const SymExpr& a, const SymExpr& b, const Location& where);
  [[nodiscard]] Result<SymShape> broadcast(const SymShape& a, const SymShape& b, const Location& where);

  [[nodiscard]] const std::vector<Guard>& guards() const { return guards_; }
  void add_guard(Guard guard); // of parsers and deserializers: no deduction beyond require()'s
  // The environment of a subgraph: the same symbols and facts. Guards stay here, where they are checked before it runs;
  // what the subgraph requires is its own.
  [[nodiscard]] ShapeEnv inner() const;
  // Substitutions made so far, symbol id -> expression; for rewriting a whole graph once inference has ended.
  [[nodiscard]] const std::unordered_map<uint64_t, SymExpr>& substitutions() const { return substitution_; }

  [[nodiscard]] std::string str() const; // "b in [0, ?], s in [1, 512] div 8; assume eq(s86, s10)"

private:
  struct Facts {
    SymRange range;
    int64_t divisor = 1;
    std::optional<int64_t> hint;
    std::optional<SymExpr> extent; // of an axis
    bool assumed = false;          // range or divisor follow from an assumption
  };
  // Results computed under the present facts. Copies of an environment start with an empty memo.
  struct Memo {
    Memo() = default;
    Memo(const Memo&) {}
    Memo& operator=(const Memo&) {
      clear();
      return *this;
    }
    void clear() {
      simplified.clear();
      ranges.clear();
      newest = 0;
    }
    std::recursive_mutex mutex;
    std::unordered_map<SymExpr, SymExpr> simplified;
    std::unordered_map<SymExpr, SymRange> ranges;
    uint64_t newest = 0; // highest symbol id that was queried: facts about newer symbols invalidate nothing
  };
  struct Reasoner; // bounds.cpp, simplify.cpp: the algorithms

  Facts& facts_of(const SymExpr& symbol); // for changing them: forgets what was computed
  void narrow(const SymExpr& symbol, SymRange range);
  void learn(const SymExpr& condition);
  void learn_equal(const SymExpr& difference);
  void learn_bound(const SymExpr& e, SymRange range);
  void replace(const SymExpr& symbol, const SymExpr& by);

  std::vector<SymExpr> order_;
  std::map<std::string, int64_t> hints_; // of symbols to come
  bool may_guess_ = false;
  std::map<std::string, SymExpr, std::less<>> by_name_;
  std::unordered_map<uint64_t, Facts> facts_;
  std::unordered_map<uint64_t, SymExpr> substitution_;
  std::unordered_map<SymExpr, SymRange> bounds_; // of sums without their constant, from guards
  std::unordered_set<SymExpr> holds_;            // conditions, from guards
  std::vector<Guard> guards_;
  bool assuming_ = false; // what is being learnt follows from an assumption
  mutable Memo memo_;
};

} // namespace tessera
