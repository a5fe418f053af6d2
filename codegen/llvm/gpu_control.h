// Loops and branches. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_ahead.h"

namespace tessera::gpu {

class Control final : Part {
public:
  Control(Context& context, Words& words, SharedMemory& shared, LoadsAhead& ahead, Operations& operations)
      : Part(context), words_(words), shared_(shared), ahead_(ahead), operations_(operations) {}
  Status loop(const tile::Op& op);
  Status branch(const tile::Op& op);
  void yield(const tile::Op& op) { yielded_ = op.operands; }

private:
  // Registers as they travel from block to block, and back: `count` elements.
  Registers to_travel(const Registers& list, DType dtype);
  Registers travelled(const Registers& list, DType dtype, size_t count);

  Words& words_;
  SharedMemory& shared_;
  LoadsAhead& ahead_;
  Operations& operations_;
  std::vector<tile::ValueId> yielded_; // operands of the last Yield
};

} // namespace tessera::gpu
