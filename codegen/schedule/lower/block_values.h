// The scalar DAG as tile operations, each value in the shape of the axes on which it depends; private to the folder.
#pragma once
#include "codegen/schedule/lower/block_stage.h"
#include "codegen/schedule/lower/block_window_lower.h"
#include "codegen/schedule/lower/nest_values.h"

namespace tessera::block {

class Scalars final : Part, public NestValues {
public:
  using V = tile::ValueId;
  Scalars(Context& context, Shift& shift, Unrolled& unrolled, StagedOperands& staged);
  V stored_value(ScalarId id); // the loaded value before its cast
  void load_ahead();
  void load_overlapped();
  void store(size_t index, V value) override;

  // block_fold.cpp: the operand of a reduction, in the dtype of its accumulator
  V filled(ScalarId from, DType dtype, ReduceKind kind);
  V fold_value(ScalarId r);
  V position();
  V nearest_position(V i); // clamped to the row
  V inside_row(V v, V otherwise);

private:
  V compute(ScalarId id) override;
  V load(ScalarId id) override { return b_.cast(stored_value(id), node(id).dtype); }
  V reduce(ScalarId r) override;
  V inside(const std::vector<int>& shape) override { return Part::inside(shape); }
  [[nodiscard]] SymExpr here(const SymExpr& e) const override { return unrolled_.here(e); }
  using NestValues::offset_of;
  V offset_of(const Access& a);

  Shift& shift_;
  Unrolled& unrolled_;
  StagedOperands& staged_;
};

} // namespace tessera::block
