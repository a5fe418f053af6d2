// The scalar DAG as tile operations, private to the folder: loads and stores with their masks, values cached between
// stages.
#pragma once
#include "codegen/schedule/lower/loop_context.h"
#include "codegen/schedule/lower/nest_values.h"

namespace tessera::loops {

class Scalars final : Part, public NestValues {
public:
  using V = tile::ValueId;
  explicit Scalars(Context& context);
  void reserve_cached(); // memory of values that later stages need
  void cache(ScalarId id);
  void store(size_t index, V value) override;
  // The store whose memory caches a value; -1: scratch.
  [[nodiscard]] const std::vector<int>& homes() const { return home_; }

private:
  V compute(ScalarId id) override;
  [[nodiscard]] bool needs_operands(ScalarId id) const override { return !is_cached_before(id); }
  // True if an earlier stage has cached it.
  [[nodiscard]] bool is_cached_before(ScalarId id) const {
    auto i = static_cast<size_t>(id);
    return c_.round > d_.stage[i] && (scratch_[i] >= 0 || (!home_.empty() && home_[i] >= 0));
  }
  void find_homes();
  V load(ScalarId id) override;
  V reduce(ScalarId) override { TESSERA_UNREACHABLE("a reduction is used before its round"); }
  V inside(const std::vector<int>& shape) override { return shape.empty() ? -1 : c_.mask; }
  V cached(ScalarId id);
  V scratch_offset();
  using NestValues::offset_of;
  V offset_of(const Access& a) { return offset_of(a, a.offset); }
  V in_full(V v) { return c_.in_square ? b_.broadcast(v, {c_.square, c_.square}) : v; }

  Values scratch_;        // by ScalarId, pointers of cached values
  std::vector<int> home_; // by ScalarId
};

} // namespace tessera::loops
