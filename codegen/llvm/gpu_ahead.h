// Loads of a loop that are copied to shared memory rounds ahead. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_accesses.h"
#include "codegen/llvm/gpu_convert.h"

namespace tessera::gpu {

class LoadsAhead final : Part {
public:
  LoadsAhead(Context& context, Positions& positions, Words& words, SharedMemory& shared, Accesses& accesses,
             Operations& operations)
      : Part(context), positions_(positions), words_(words), shared_(shared), accesses_(accesses),
        operations_(operations) {}

  struct Copy {
    tile::OpId load = -1;
    layout::Conversion plan; // of a factor of a product
    int64_t at = 0;          // byte offset in a stage
    int width = 1;           // elements of a copy
    tile::OpId into = -1;    // what is loaded is only stored, by this, to scratch: copied there, to no stage
  };
  // Of a loop.
  struct Ahead {
    std::vector<Copy> copies;
    std::vector<tile::OpId> slice; // what computes their offsets and masks, in order
    int64_t region = 0, stage_bytes = 0;
    bool own = false; // each thread reads what it has copied itself, in the layout of the load
    int stages = 2;
    bool refills = true; // the loop may have more rounds than stages
  };
  Ahead plan(const tile::Op& loop); // takes shared memory for them
  // Starts the copies of the round with this induction value, where the predicate is true.
  // `afterwards` gets what remains to be emitted behind them.
  Status copy(const tile::Op& loop, const Ahead& ahead, Value* induction, Value* predicate, Value* stage,
              std::vector<std::function<void()>>& afterwards);

  // The body of a loop is emitted between the two. Its loads read this stage.
  void enter(const Ahead& ahead, Value* stage);
  void leave(const Ahead& ahead);

  // Nothing is emitted for a load or a store that copies are made for.
  [[nodiscard]] bool is_copied(tile::OpId id) const { return copied_.contains(id); }
  // The factor of a product in shared memory; null where it is in registers.
  [[nodiscard]] const Staged* staged(tile::ValueId id) const;
  // Whether it is one that each thread reads its own elements of, by load_own.
  [[nodiscard]] bool is_own(tile::ValueId id) const { return own_.contains(id); }
  Status load_own(const tile::Op& load);

private:
  Ahead loads_ahead(const tile::Op& loop);
  Ahead own_loads_ahead(const tile::Op& loop);
  // The store to scratch that is all that reads a load of the loop's body, where copies of several rounds may be made
  // before the loop: to other places in each round, of memory that nothing has touched before. Nothing, or -1.
  [[nodiscard]] tile::OpId only_stored(const tile::Op& loop, const tile::Op& load) const;
  [[nodiscard]] bool at_most_rounds(const tile::Op& loop, int rounds) const;
  Value* own_place(const Ahead& ahead, const Copy& copy, size_t register_index, Value* stage);

  Positions& positions_;
  Words& words_;
  SharedMemory& shared_;
  Accesses& accesses_;
  Operations& operations_;
  std::map<tile::ValueId, Staged> staged_; // loaded tiles that are in shared memory
  struct OwnTile {
    Ahead ahead;
    Copy copy;
    Value* stage = nullptr;
  };
  std::map<tile::ValueId, OwnTile> own_; // those of which each thread reads its own elements
  std::set<tile::OpId> copied_;          // loads and stores of a loop's body that copies are made for
  int loops_ = 0;                        // around what is being emitted
  // Of the first loop with loads ahead; how many such loops are around what is being emitted.
  int64_t region_ = 0, bytes_ = 0;
  int depth_ = 0;
};

} // namespace tessera::gpu
