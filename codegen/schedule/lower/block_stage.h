// Transposed operands through shared memory, as they lie in memory; private to the folder.
#pragma once
#include "codegen/schedule/lower/block_shift.h"
#include <functional>

namespace tessera::block {

class StagedOperands final : Part {
public:
  StagedOperands(Context& context, Shift& shift) : Part(context), shift_(shift) {}
  struct Operand {
    ScalarId id = -1;     // of the load
    SymExpr pitch;        // from one column to the next, elements
    int64_t vector = 1;   // elements of a whole access
    int64_t halo = 0;     // columns before the tile's
    int64_t columns = 1;  // of them and the tile's
    int64_t accesses = 1; // whole ones, of a column; of all of it where that is one run
    bool one_run = false; // columns lie in memory without gaps, and the tile has all their rows
    bool gaps = false;    // in shared memory, against conflicts
    V memory = -1, first = -1;
  };
  void reserve();
  // `beside` is emitted between the loads from memory and the stores to shared memory.
  void stage(bool whole, const std::function<void()>& beside);
  [[nodiscard]] const Operand* find(ScalarId id) const;
  V value(const Operand& s);

private:
  V step(const Operand& s);
  V place(const Operand& s, V column);

  Shift& shift_;
  std::vector<Operand> staged_;
};

} // namespace tessera::block
