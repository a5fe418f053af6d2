// The scalar DAG of a nest as tile operations, as far as it is the same for hosts and GPUs: constants, sizes, pointwise
// operators, checks of indices, the order of stores. The lowerings add where values are loaded from and what masks are.
#pragma once
#include "codegen/schedule/lower/kernel_context.h"
#include "codegen/schedule/lower/memo.h"

namespace tessera {

class NestValues : public DagValues {
public:
  // Computes what depends on these axes only, and on rounds that are over: before a loop opens.
  void hoist(uint64_t axes);
  virtual void store(size_t index, tile::ValueId value) = 0;
  void store_all();  // of a nest without reductions
  void store_rows(); // what is stored once a row

protected:
  using V = tile::ValueId;
  NestValues(KernelContext& context, Memo& memo);
  ~NestValues() = default;

  V compute(ScalarId id) override;
  virtual V load(ScalarId id) = 0;
  virtual V reduce(ScalarId id) = 0; // one that is used before it is known
  // Which elements of a tile of this shape exist; -1: all.
  virtual V inside(const std::vector<int>& shape) = 0;
  // An expression over the axes where they are renamed for the moment.
  [[nodiscard]] virtual SymExpr here(const SymExpr& e) const { return e; }

  // `start` plus the terms that data decide.
  V offset_of(const Access& a, const SymExpr& start);
  // The condition under which a load may read, the sides of the tile apart: the row has points, an index that data say
  // has an element, its own predicate. -1 is true.
  V may_read(ScalarId load);

private:
  V divide(ScalarId id);
  V check_bounds(ScalarId id);
  // A value that only the row needs is read ahead of it where the row has points. -1 is true.
  V row_has_points(ScalarId id);
  // x / s with s a result of the row's reductions, x varying along the row: softmax, norms. One reciprocal per row
  // replaces a division per element; docs/schedules.md says what that costs in accuracy and how to turn it off.
  [[nodiscard]] bool divides_by_row_scalar(ScalarId id) const;
  V reciprocal(ScalarId divisor);
  int site(ScalarId id);

  KernelContext& kernel_;
  std::vector<int> sites_;    // of CheckBounds, -1 before
  std::vector<int> reported_; // round that reports; -2: none has
};

} // namespace tessera
