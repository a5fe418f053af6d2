// Memo of computed values of the scalar DAG, private to the folder. Values computed in a loop's body or a branch are
// dropped at its end.
#pragma once
#include "codegen/schedule/domain.h"
#include "codegen/tile/tile.h"

namespace tessera {

class Memo {
public:
  explicit Memo(size_t n) : values_(2 * n, -1) {}
  // By ScalarId; then reciprocals by ScalarId of the divisor.
  [[nodiscard]] tile::ValueId operator[](size_t slot) const { return values_[slot]; }
  void forget(size_t slot) { values_[slot] = -1; }
  void remember(size_t slot, tile::ValueId v) {
    values_[slot] = v;
    log_.push_back(slot);
  }
  template <class F>
  auto scoped(F&& f) {
    struct Leave {
      Memo& memo;
      size_t mark;
      ~Leave() {
        for (; memo.log_.size() > mark; memo.log_.pop_back()) memo.forget(memo.log_.back());
      }
    } leave{*this, log_.size()};
    return f();
  }

private:
  std::vector<tile::ValueId> values_;
  std::vector<size_t> log_; // slots in insertion order
};

// Computes values on request, each once per scope.
class DagValues {
public:
  tile::ValueId value(ScalarId id);

protected:
  DagValues(const ScalarDag& dag, const Domain& domain, Memo& memo) : dag_(dag), domain_(domain), values_(memo) {}
  ~DagValues() = default;
  virtual tile::ValueId compute(ScalarId id) = 0;
  [[nodiscard]] virtual bool needs_operands(ScalarId) const { return true; } // false: computing it needs no operands

  const ScalarDag& dag_;
  const Domain& domain_;
  Memo& values_;

private:
  void prepare(ScalarId root);

  bool preparing_ = false;
};

} // namespace tessera
