#include "codegen/schedule/lower/memo.h"

namespace tessera {

// Computes the nodes below `root` of a large DAG in order, so that recursion stays shallow.
void DagValues::prepare(ScalarId root) {
  std::vector<char> needed(static_cast<size_t>(root) + 1);
  needed.back() = 1;
  for (ScalarId id = root; id >= 0; --id) {
    if (!needed[static_cast<size_t>(id)] || !needs_operands(id)) continue;
    for (ScalarId a : dag_[id].args)
      if (domain_.live[static_cast<size_t>(a)] && values_[static_cast<size_t>(a)] < 0)
        needed[static_cast<size_t>(a)] = 1;
  }
  for (ScalarId id = 0; id < root; ++id) {
    size_t i = static_cast<size_t>(id);
    if (needed[i] && values_[i] < 0) values_.remember(i, compute(id));
  }
}

tile::ValueId DagValues::value(ScalarId id) {
  size_t i = static_cast<size_t>(id);
  if (values_[i] >= 0) return values_[i];
  constexpr int kLarge = 256;
  if (dag_.size() > kLarge && !preparing_) {
    preparing_ = true;
    prepare(id);
    preparing_ = false;
  }
  auto v = compute(id);
  values_.remember(i, v);
  return v;
}

} // namespace tessera
