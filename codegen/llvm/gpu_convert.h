// Layout conversions as planned by codegen/layout. Private to codegen/llvm.
#pragma once
#include "codegen/layout/conversion.h"
#include "codegen/llvm/gpu_positions.h"
#include "codegen/llvm/gpu_shared.h"

namespace tessera::gpu {

// A tile in shared memory, arranged for the layout of its readers.
struct Staged {
  layout::Conversion plan;
  DType dtype = DType::F32;
  int64_t region = 0;     // byte offset
  Value* stage = nullptr; // i32 byte offset added to `region`; null: 0
  Value* base = nullptr;  // i32 element offset of this thread's loads, without the register's part
};

class Conversions final : Part {
public:
  Conversions(Context& context, Positions& positions, Words& words, SharedMemory& shared)
      : Part(context), positions_(positions), words_(words), shared_(shared) {}
  Status convert(const tile::Op& op);
  // Moves elements between registers and lanes (shuffles).
  Registers exchanged(const Registers& source, const layout::Conversion& plan, size_t results);
  // Trades bits of lanes and registers (Conversion::Kind::Swaps).
  Registers swapped(const Registers& source, const layout::Conversion& plan, DType dtype);
  // Stores a tile of plan.shared_bytes to `region`. A barrier must follow before it is loaded.
  Staged stage(const Registers& source, layout::Conversion plan, DType dtype, int64_t region);
  // Loads registers [first, first + load_step()) of the readers' layout.
  Registers staged_registers(Staged& staged, size_t first);

private:
  Positions& positions_;
  Words& words_;
  SharedMemory& shared_;
};

} // namespace tessera::gpu
