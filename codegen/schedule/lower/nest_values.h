// The scalar DAG of a nest as tile operations, as far as hosts and GPUs share it: constants, sizes, pointwise
// operators, index checks, order of stores. The lowerings add loads and masks.
#pragma once
#include "codegen/schedule/lower/kernel_context.h"
#include "codegen/schedule/lower/memo.h"

namespace tessera {

class NestValues : public DagValues {
public:
  // Before a loop opens: computes values that depend only on these axes and on completed stages.
  void hoist(uint64_t axes);
  virtual void store(size_t index, tile::ValueId value) = 0;
  void store_all();  // all stores of a nest without reductions
  void store_rows(); // stores of values that exist once per row

protected:
  using V = tile::ValueId;
  NestValues(KernelContext& context, Memo& memo);
  ~NestValues() = default;

  V compute(ScalarId id) override;
  virtual V load(ScalarId id) = 0;
  virtual V reduce(ScalarId id) = 0; // a reduction that is used before its stage
  // Mask of the existing elements of a tile of this shape; -1: all exist.
  virtual V inside(const std::vector<int>& shape) = 0;
  // An expression over the axes, with axes substituted if they are renamed.
  [[nodiscard]] virtual SymExpr here(const SymExpr& e) const { return e; }

  // `start` plus the data-dependent terms.
  V offset_of(const Access& a, const SymExpr& start);
  // The condition under which a load may read, except for the sides of the tile: the row is not empty, a data-dependent
  // index is valid, the load's own predicate. -1 is true.
  V may_read(ScalarId load);

private:
  V divide(ScalarId id);
  V check_bounds(ScalarId id);
  // Condition of values that only the row needs and that are read before it: the row is not empty. -1 is true.
  V row_has_points(ScalarId id);
  // x / s with s a result of the row's reductions and x varying along the row, as in softmax and norms: one reciprocal
  // per row replaces a division per element. docs/schedules.md explains the accuracy and the option against it.
  [[nodiscard]] bool divides_by_row_scalar(ScalarId id) const;
  V reciprocal(ScalarId divisor);
  void report(ScalarId check, V bad, V below, V index);

  KernelContext& kernel_;
  std::vector<int> sites_;    // by ScalarId: site of a live CheckBounds
  std::vector<int> reported_; // the stage that reports; -2: none
};

} // namespace tessera
