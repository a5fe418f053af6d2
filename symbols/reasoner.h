// The algorithms behind ShapeEnv. Private to symbols. Callers hold the memo's lock.
#pragma once
#include "symbols/env.h"
#include "symbols/node.h"

namespace tessera {

struct ShapeEnv::Reasoner {
  const ShapeEnv& env;
  // Atoms that one query may eliminate before it takes what interval arithmetic says: nested divisions by sizes that
  // share symbols double the work at each level.
  int effort = 500;

  // -- simplify.cpp
  [[nodiscard]] SymExpr simplify(const SymExpr& e, int steps = 0);
  [[nodiscard]] int64_t divisor(const SymExpr& e);

  // -- bounds.cpp: of simplified expressions
  [[nodiscard]] SymRange range(const SymExpr& e);
  [[nodiscard]] bool positive(const SymExpr& e) { return range(e).lo > 0; }
  // Whether `divisor` is positive wherever `e` is evaluated: an axis has points only where its extent is positive, so
  // in floordiv(i, s) with 0 <= i < s, s may be divided by though it may be 0 elsewhere.
  [[nodiscard]] bool positive_where(const SymExpr& e, const SymExpr& divisor);
  [[nodiscard]] bool within(const SymExpr& e, const SymExpr& extent); // 0 <= e < extent

private:
  SymExpr local(const SymExpr& e);
  SymExpr local_sum(const SymExpr& e);
  SymExpr local_product(const SymExpr& e);
  SymExpr local_division(const SymExpr& e);
  SymExpr local_extremum(const SymExpr& e);
  SymExpr any_of(const SymExpr& e);
  SymExpr local_comparison(const SymExpr& e);
  SymRange interval(const SymExpr& e);
  std::vector<SymExpr> independent_parts(const SymExpr& e);
  int64_t bound(const SymExpr& e, bool upper, int budget);
  int64_t eliminated(const SymExpr& e, int64_t plain, bool upper, int budget);
  std::optional<int64_t> bound_without(const SymExpr& e, const SymExpr& atom, bool upper, int budget);
  const Facts* facts(const SymExpr& symbol) const;
};

} // namespace tessera
