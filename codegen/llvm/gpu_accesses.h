// Common code of memory accesses: addresses of scratch and global memory, barriers before accesses that conflict, masks
// that are true for a part of an access. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_positions.h"
#include "codegen/llvm/gpu_shared.h"
#include <functional>
#include <set>

namespace tessera::gpu {

// Predicates of accesses whose mask may be true for only a part of their elements. Such an access is made element by
// element, behind a branch that few threads take.
struct Parts {
  Registers whole, cut;  // i1 per access: the mask is true for all, for some of its elements
  Value* rest = nullptr; // i1: some access of this thread is partial
};

class Accesses final : Part {
public:
  Accesses(Context& context, Positions& positions, Words& words, SharedMemory& shared)
      : Part(context), positions_(positions), words_(words), shared_(shared) {}

  Status reserve_scratch();
  [[nodiscard]] bool is_scratch(tile::ValueId pointer) const { return scratch_.contains(pointer); }
  // True if the code emitted so far accesses it.
  [[nodiscard]] bool is_touched_scratch(tile::ValueId pointer) const { return touched_scratch_.contains(pointer); }

  // A tile of integers as a sum: a scalar plus, for each dimension, a range times a constant.
  struct Affine {
    std::vector<int64_t> strides; // by dimension; empty for a scalar
    int64_t divisor = 1;          // of the scalar addend
  };
  [[nodiscard]] std::optional<Affine> affine(tile::ValueId id) const;
  [[nodiscard]] bool covers_whole_tiles(tile::ValueId offset) const; // GlobalAccess::whole

  void order(GlobalAccess::Kind kind, const tile::Op& op); // emits a barrier before `op` if it conflicts
  Value* address(tile::ValueId pointer, Value* offset);    // of scratch: i32 byte offset in shared memory
  [[nodiscard]] Stability stability_of(tile::ValueId pointer) const;
  Value* acts_for(tile::ValueId offset); // i1: this thread stores; null: all threads do

  Parts parts(const Registers& masks, int width);
  llvm::BasicBlock* rest_of(const Parts& parts,
                            const std::function<void()>& body); // returns the block in which the branch ends
  // Loads the elements of partial accesses into `groups`, words by access. Elements with a false mask keep their value.
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
