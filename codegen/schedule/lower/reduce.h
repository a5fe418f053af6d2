// Reductions in the loops over the row, private to the folder.
#pragma once
#include "codegen/schedule/fold.h"
#include "codegen/schedule/lower/values.h"
#include <span>

namespace tessera::loops {

class Folding final : Part {
public:
  Folding(Context& context, Scalars& scalars) : Part(context), scalars_(scalars) {}
  [[nodiscard]] bool is_arg(ScalarId r) const { return is_arg_fold(node(r)); }
  Values identities(const Stage& stage, int lanes);
  [[nodiscard]] std::vector<bool> sums(const Stage& stage) const; // which of these are sums of floats
  Values accumulate(ScalarId r, std::span<const V> acc);
  V better(ScalarId r, V v, V i, V best, V best_i);
  void finish(const Stage& stage, const std::vector<Values>& groups);

private:
  V fold_value(ScalarId r);

  Scalars& scalars_;
};

} // namespace tessera::loops
