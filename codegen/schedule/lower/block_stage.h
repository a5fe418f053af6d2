// Transposed operands staged through shared memory in their memory order; private to the folder.
#pragma once
#include "codegen/schedule/lower/block_shift.h"
#include <functional>

namespace tessera::block {

class StagedOperands final : Part {
public:
  StagedOperands(Context& context, Shift& shift) : Part(context), shift_(shift) {}
  struct Operand {
    ScalarId id = -1;     // the load
    SymExpr pitch;        // elements from one column to the next
    int64_t vector = 1;   // elements of a vector access
    int64_t halo = 0;     // extra columns before the tile's
    int64_t columns = 1;  // number of columns, halo included
    int64_t accesses = 1; // vector accesses of a column, or of all columns if `one_run`
    bool one_run = false; // columns are contiguous in memory, and the tile has all their rows
    bool gaps = false;    // padding in shared memory against bank conflicts
    V memory = -1, first = -1;
  };
  void reserve();
  // `overlapped` is emitted between the loads from memory and the stores to shared memory.
  void stage(bool whole, const std::function<void()>& overlapped);
  [[nodiscard]] const Operand* find(ScalarId id) const;
  V value(const Operand& s);

private:
  V step(const Operand& s);
  V place(const Operand& s, V column);

  Shift& shift_;
  std::vector<Operand> staged_;
};

} // namespace tessera::block
