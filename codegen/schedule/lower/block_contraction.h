// Contractions (contraction.h), private to the folder: a loop over the depth that multiplies tiles of both factors.
#pragma once
#include "codegen/schedule/contraction.h"
#include "codegen/schedule/lower/block_place.h"
#include "codegen/schedule/lower/block_values.h"

namespace tessera::block {

class Product final : Part {
public:
  Product(Context& context, Placement& placement, Scalars& scalars)
      : Part(context), placement_(placement), scalars_(scalars) {}
  // Takes the blocks of both sides from a program's index: the blocks of `group_rows` tiles of rows follow each other,
  // column by column, so that they find what they read in the level-2 cache. Returns the index of the point.
  V take_blocks(V number, const SymExpr& row_blocks, const SymExpr& column_blocks, bool points);
  void body();

private:
  void hoist(ScalarId factor);
  V zero_of(DType dtype);
  V factor(ScalarId id, bool left, V base);
  Values add_products(std::span<const V> left, std::span<const V> right, V none, std::span<const V> sums);
  V total(const Values& sums);

  Placement& placement_;
  Scalars& scalars_;
};

} // namespace tessera::block
