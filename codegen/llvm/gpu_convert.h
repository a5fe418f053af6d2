// Tiles that change their layout, as codegen/layout plans it. Private to codegen/llvm.
#pragma once
#include "codegen/layout/conversion.h"
#include "codegen/llvm/gpu_positions.h"
#include "codegen/llvm/gpu_shared.h"

namespace tessera::gpu {

// A tile in shared memory, arranged for the layout it is wanted in.
struct Staged {
  layout::Conversion plan;
  DType dtype = DType::F32;
  int64_t region = 0;     // byte offset
  Value* stage = nullptr; // i32 byte offset beside `region`; null: 0
  Value* base = nullptr;  // i32, of what this thread names in its loads: elements, without the register's part
};

class Conversions final : Part {
public:
  Conversions(Context& context, Positions& positions, Words& words, SharedMemory& shared)
      : Part(context), positions_(positions), words_(words), shared_(shared) {}
  Status convert(const tile::Op& op);
  // Moves between registers and lanes as planned.
  Registers exchanged(const Registers& source, const layout::Conversion& plan, size_t results);
  // Stores a tile of plan.shared_bytes to `region`. A barrier must follow before it is loaded.
  Staged stage(const Registers& source, layout::Conversion plan, DType dtype, int64_t region);
  // One load: registers [first, first + load_step()) of the layout that it was arranged for.
  Registers staged_registers(Staged& staged, size_t first);

private:
  Positions& positions_;
  Words& words_;
  SharedMemory& shared_;
};

} // namespace tessera::gpu
