// Loops and branches. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_pipeline.h"

namespace tessera::gpu {

class Control final : Part {
public:
  Control(Context& context, Words& words, SharedMemory& shared, Pipelining& loads, Operations& operations)
      : Part(context), words_(words), shared_(shared), pipelining_(loads), operations_(operations) {}
  Status loop(const tile::Op& op);
  Status branch(const tile::Op& op);
  void yield(const tile::Op& op) { yielded_ = op.operands; }

private:
  // Registers of a tile packed into words for phi nodes, and unpacked to `count` elements.
  Registers packed(const Registers& list, DType dtype);
  Registers unpacked(const Registers& list, DType dtype, size_t count);

  Words& words_;
  SharedMemory& shared_;
  Pipelining& pipelining_;
  Operations& operations_;
  std::vector<tile::ValueId> yielded_; // operands of the last Yield
};

} // namespace tessera::gpu
