// The scalar DAG as operations on tiles of the shape that each value's dependences ask for, private to the folder.
#pragma once
#include "codegen/schedule/lower/block_stage.h"
#include "codegen/schedule/lower/block_window_lower.h"

namespace tessera::block {

class Scalars final : Part, public DagValues {
public:
  Scalars(Context& context, Shift& shift, Unrolled& unrolled, StagedOperands& staged);
  V stored_value(ScalarId id); // of a load: as memory has it
  void hoist(uint64_t axes);
  void load_ahead();
  void load_beside();
  void store(size_t index, V value);
  void store_rows();

  // block_fold.cpp: what is folded, in the dtype it is folded in
  V filled(ScalarId from, DType dtype, ReduceKind kind);
  V fold_value(ScalarId r);
  V position();
  V nearest_position(V i); // within the row
  V inside_row(V v, V otherwise);

private:
  V compute(ScalarId id) override;
  V load(ScalarId id) { return b_.cast(stored_value(id), node(id).dtype); }
  V check_bounds(ScalarId id);
  V divide(ScalarId id);
  V reduce(ScalarId r);
  V offset_of(const Access& a);
  V row_has_points(ScalarId id);
  int site(ScalarId id);

  Shift& shift_;
  Unrolled& unrolled_;
  StagedOperands& staged_;
  std::vector<int> sites_;    // of CheckBounds, -1 before
  std::vector<int> reported_; // round that reports; -2: none has
};

} // namespace tessera::block
