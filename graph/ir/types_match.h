// Comparing a type that stands in the IR with what inference yields now. An operator whose sizes depend on data makes
// fresh symbols each time it is inferred; a dimension that speaks of one agrees with anything.
#pragma once
#include "graph/ir/graph.h"
#include <unordered_set>

namespace tessera {

class FreshSymbols {
public:
  // Those that `env` got since it had `before` of them.
  FreshSymbols(const ShapeEnv& env, size_t before) {
    for (size_t i = before; i < env.symbols().size(); ++i) ids_.insert(env.symbols()[i].symbol_id());
  }
  void add(const SymExpr& symbol) { ids_.insert(symbol.symbol_id()); }
  [[nodiscard]] bool in(const SymExpr& e) const {
    if (ids_.empty()) return false;
    for (const SymExpr& s : e.symbols())
      if (ids_.count(s.symbol_id())) return true;
    return false;
  }
  [[nodiscard]] bool empty() const { return ids_.empty(); }

private:
  std::unordered_set<uint64_t> ids_;
};

[[nodiscard]] inline bool types_match(const ShapeEnv& env, const TensorType& stated, const TensorType& inferred,
                                      const FreshSymbols& fresh) {
  if (stated.dtype != inferred.dtype || stated.shape.size() != inferred.shape.size()) return false;
  for (size_t d = 0; d < stated.shape.size(); ++d)
    if (stated.shape[d] != inferred.shape[d] && !fresh.in(inferred.shape[d]) && !fresh.in(stated.shape[d]) &&
        !env.known_equal(stated.shape[d], inferred.shape[d]))
      return false;
  return true;
}

} // namespace tessera
