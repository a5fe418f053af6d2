// Values of the scalar DAG that are there, private to the folder. What a loop's body or a branch has computed is
// forgotten at its end.
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
  std::vector<size_t> log_; // slots in order of remembering
};

// Values in the order in which they are asked for, each once in its scope.
class DagValues {
public:
  tile::ValueId value(ScalarId id);

protected:
  DagValues(const ScalarDag& dag, const Domain& domain, Memo& memo) : dag_(dag), domain_(domain), values_(memo) {}
  ~DagValues() = default;
  virtual tile::ValueId compute(ScalarId id) = 0;
  [[nodiscard]] virtual bool needs_operands(ScalarId) const { return true; } // to be computed

  const ScalarDag& dag_;
  const Domain& domain_;
  Memo& values_;

private:
  void prepare(ScalarId root);

  bool preparing_ = false;
};

} // namespace tessera
