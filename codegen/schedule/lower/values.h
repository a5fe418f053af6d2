// The scalar DAG as tile operations, private to the folder: loads and stores with their masks, values that are kept.
#pragma once
#include "codegen/schedule/lower/loop_context.h"

namespace tessera::loops {

class Scalars final : Part, public DagValues {
public:
  explicit Scalars(Context& context);
  void reserve_kept(); // homes and scratch of what later rounds need
  void hoist(uint64_t axes);
  void keep(ScalarId id);
  void store(size_t index, V value);
  void store_all();  // of a nest without reductions
  void store_rows(); // what is stored once a row
  // The store in whose memory a kept value lies; -1: in scratch.
  [[nodiscard]] const std::vector<int>& homes() const { return home_; }

private:
  V compute(ScalarId id) override;
  [[nodiscard]] bool needs_operands(ScalarId id) const override { return !is_kept_before(id); }
  // An earlier round than the current one has kept it.
  [[nodiscard]] bool is_kept_before(ScalarId id) const {
    auto i = static_cast<size_t>(id);
    return c_.round > d_.stage[i] && (scratch_[i] >= 0 || (!home_.empty() && home_[i] >= 0));
  }
  void find_homes();
  V load(ScalarId id);
  V check_bounds(ScalarId id);
  V divide(ScalarId id);
  V kept(ScalarId id);
  V scratch_offset();
  V offset_of(const Access& a);
  // The mask under which a value that only the row needs may be read ahead of the row: the row has points. -1 is true.
  V row_has_points(ScalarId id);
  V both(V a, V b); // conjunction of masks, -1 is true
  V in_full(V v) { return c_.in_square ? b_.broadcast(v, {c_.square, c_.square}) : v; }
  [[nodiscard]] bool divides_by_row_scalar(ScalarId id) const;
  int site(ScalarId id);

  Values scratch_;            // by ScalarId, pointers of kept values
  std::vector<int> home_;     // by ScalarId
  std::vector<int> sites_;    // of CheckBounds, -1 before
  std::vector<int> reported_; // round that reports
};

} // namespace tessera::loops
