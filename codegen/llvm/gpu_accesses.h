// What all accesses of memory go through: scratch and global memory by one address, barriers before accesses that need
// one, masks that hold for a part of an access. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_positions.h"
#include "codegen/llvm/gpu_shared.h"
#include <functional>
#include <set>

namespace tessera::gpu {

// Accesses whose mask may hold for a part of their elements: those of which it holds for all, and whether this thread
// has others, which are made element by element, behind a branch that few threads take.
struct Parts {
  Registers whole, cut; // i1, by access: the mask holds for all, for some of its elements
  Value* rest = nullptr;
};

class Accesses final : Part {
public:
  Accesses(Context& context, Positions& positions, Words& words, SharedMemory& shared)
      : Part(context), positions_(positions), words_(words), shared_(shared) {}

  Status reserve_scratch();
  [[nodiscard]] bool is_scratch(tile::ValueId pointer) const { return scratch_.contains(pointer); }
  // By what has been emitted.
  [[nodiscard]] bool is_touched_scratch(tile::ValueId pointer) const { return touched_scratch_.contains(pointer); }

  // A tile of numbers as a sum of ranges times constants, one along each dimension, and a scalar.
  struct Affine {
    std::vector<int64_t> strides; // by dimension; none of a scalar
    int64_t divisor = 1;          // of what is added to them
  };
  [[nodiscard]] std::optional<Affine> affine(tile::ValueId id) const;
  [[nodiscard]] bool covers_whole_tiles(tile::ValueId offset) const; // GlobalAccess::whole

  void order(GlobalAccess::Kind kind, const tile::Op& op); // a barrier before `op` where one is needed
  Value* address(tile::ValueId pointer, Value* offset);    // of scratch: i32 byte offset in shared memory
  [[nodiscard]] Stability stability_of(tile::ValueId pointer) const;
  Value* acts_for(tile::ValueId offset); // i1: this thread stores; null for all threads

  Parts parts(const Registers& masks, int width);
  llvm::BasicBlock* rest_of(const Parts& parts, const std::function<void()>& body); // where it ends
  // What a load has, as words by access, with the elements of the rest. Those where the mask is false stay.
  using Groups = std::vector<std::vector<Value*>>;
  void load_rest(const tile::Op& op, const Parts& parts, int width, Groups& groups);

private:
  Positions& positions_;
  Words& words_;
  SharedMemory& shared_;
  std::map<tile::ValueId, int64_t> scratch_; // scratch pointers: byte offset in shared memory
  std::set<tile::ValueId> touched_scratch_;
};

} // namespace tessera::gpu
