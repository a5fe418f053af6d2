// Accumulators of loops over the row, private to the folder: tiles without the dimensions of steps and runs.
#pragma once
#include "codegen/schedule/lower/block_values.h"

namespace tessera::block {

class Accumulators final : Part {
public:
  Accumulators(Context& context, Scalars& scalars) : Part(context), scalars_(scalars) {}
  Values identities(const Fold& fold);
  Values accumulate(const Fold& fold, const Values& acc);
  Values merged(const Fold& fold, Values acc);
  void finish(const Fold& fold, const Values& acc);
  // A loop that folds a tile a step, `tiles` at most; `carried`: accumulators, then what else it carries. A loop that
  // may be long folds blocks of tiles, so that the error of sums does not grow with the number of tiles.
  Values loop(const Fold& fold, V from, V to, V step, const SymExpr& tiles, const Values& carried,
              const std::function<Values(V, std::span<const V>)>& body);

private:
  Values accumulate_online(const Fold& fold, const FoldState::Part& part, const Values& acc, const Values& next);
  Values own(const std::function<Values(const Values&, int)>& fold, Values v);
  V own(ReduceKind kind, V v);
  V beside_own(V v);
  V elements_met();

  Scalars& scalars_;
};

} // namespace tessera::block
