// Loops and branches. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_pipeline.h"
#include "codegen/llvm/gpu_ring.h"

namespace tessera::gpu {

class Control final : Part {
public:
  Control(Context& context, Words& words, SharedMemory& shared, Pipelining& loads, Ring& ring, Operations& operations)
      : Part(context), words_(words), shared_(shared), pipelining_(loads), ring_(ring), operations_(operations) {}
  Status loop(tile::OpId id);
  Status ring_loop(tile::OpId id); // one whose operands a producer copies
  Status branch(const tile::Op& op);
  void yield(const tile::Op& op) { yielded_ = op.operands; }

private:
  // Bounds and step of a loop: i32 where all values fit.
  struct Counter {
    Value *from = nullptr, *to = nullptr, *step = nullptr;
    bool fits_32 = false;
  };
  Counter counter_of(const tile::Op& loop);
  Value* index(const Counter& counter, Value* v) { return counter.fits_32 ? b_.CreateSExt(v, b_.getInt64Ty()) : v; }
  // Registers of values as they pass to `targets` of another basic block, packed into words; the targets' from these.
  std::vector<Registers> packed(std::span<const tile::ValueId> values, std::span<const tile::ValueId> targets);
  void define_packed(std::span<const tile::ValueId> targets, const std::vector<Registers>& lists);
  // Phi nodes that have the lists' values where `from` was left.
  std::vector<Registers> phis(const std::vector<Registers>& lists, llvm::BasicBlock* from);

  Words& words_;
  SharedMemory& shared_;
  Pipelining& pipelining_;
  Ring& ring_;
  Operations& operations_;
  std::vector<tile::ValueId> yielded_; // operands of the last Yield
};

} // namespace tessera::gpu
