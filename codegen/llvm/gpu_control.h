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
  // Registers of values as they pass to `targets` of another basic block, packed into words; the targets' from these.
  std::vector<Registers> packed(std::span<const tile::ValueId> values, std::span<const tile::ValueId> targets);
  void define_packed(std::span<const tile::ValueId> targets, const std::vector<Registers>& lists);
  // Phi nodes that have the lists' values where `from` was left.
  std::vector<Registers> phis(const std::vector<Registers>& lists, llvm::BasicBlock* from);

  Words& words_;
  SharedMemory& shared_;
  Pipelining& pipelining_;
  Operations& operations_;
  std::vector<tile::ValueId> yielded_; // operands of the last Yield
};

} // namespace tessera::gpu
