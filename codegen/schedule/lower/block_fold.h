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

private:
  Values accumulate_online(const Fold& fold, const FoldState::Part& part, const Values& acc, const Values& next);
  Values own(const std::function<Values(const Values&, int)>& fold, Values v);
  V own(ReduceKind kind, V v);
  V beside_own(V v);
  V elements_met();

  Scalars& scalars_;
};

} // namespace tessera::block
