// Software pipelining: asynchronous copies of a loop's loads to shared memory. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_accesses.h"
#include "codegen/llvm/gpu_convert.h"

namespace tessera::gpu {

class Pipelining final : Part {
public:
  Pipelining(Context& context, Positions& positions, Words& words, SharedMemory& shared, Accesses& accesses,
             Operations& operations)
      : Part(context), positions_(positions), words_(words), shared_(shared), accesses_(accesses),
        operations_(operations) {}

  struct Copy {
    tile::OpId load = -1;
    layout::Conversion plan; // of a dot operand: to the layout of tensor cores
    int64_t at = 0;          // byte offset in a stage
    int width = 1;           // elements of one copy
    tile::OpId into = -1;    // the store to scratch that alone reads the load: the copy goes there, and to no stage
  };
  // The pipelined loads of one loop.
  struct Loads {
    std::vector<Copy> copies;
    std::vector<tile::OpId> slice; // operations that compute offsets and masks, in order
    int64_t region = 0, stage_bytes = 0;
    bool per_thread = false; // each thread reads only what it copied itself, in the layout of the load
    int stages = 2;
    bool refills = true; // the loop may have more iterations than stages
  };
  Loads plan(const tile::Op& loop); // reserves shared memory for the stages
  // Starts the copies of the iteration with this induction value, if the predicate is true. Appends to `deferred` the
  // code that must follow all copies.
  Status copy(const tile::Op& loop, const Loads& loads, Value* induction, Value* predicate, Value* stage,
              std::vector<std::function<void()>>& deferred);

  // The body of the loop is emitted between the two calls. Its loads read this stage.
  void enter(const Loads& loads, Value* stage);
  void leave(const Loads& loads);

  // True for loads and stores that copies replace: no code is emitted for them.
  [[nodiscard]] bool is_copied(tile::OpId id) const { return copied_.contains(id); }
  // The dot operand in shared memory; null if it is in registers.
  [[nodiscard]] const Staged* staged(tile::ValueId id) const;
  // True if each thread reads the elements that it copied itself, by load_per_thread().
  [[nodiscard]] bool is_per_thread(tile::ValueId id) const { return per_thread_.contains(id); }
  Status load_per_thread(const tile::Op& load);

private:
  Loads plan_factors(const tile::Op& loop);
  [[nodiscard]] bool has_room(const tile::Op& loop, int64_t bytes);
  Loads plan_per_thread(const tile::Op& loop);
  // The store to scratch that alone reads `load`, if copies of several iterations may start before the loop: each
  // iteration stores to other elements, and nothing has accessed the scratch before. -1 if there is none.
  [[nodiscard]] tile::OpId only_store(const tile::Op& loop, const tile::Op& load) const;
  [[nodiscard]] bool at_most_iterations(const tile::Op& loop, int iterations) const;
  Value* thread_offset(const Loads& loads, const Copy& copy, size_t register_index, Value* stage);

  Positions& positions_;
  Words& words_;
  SharedMemory& shared_;
  Accesses& accesses_;
  Operations& operations_;
  std::map<tile::ValueId, Staged> staged_; // dot operands in shared memory
  struct PerThreadTile {
    Loads loads;
    Copy copy;
    Value* stage = nullptr;
  };
  std::map<tile::ValueId, PerThreadTile> per_thread_;
  std::set<tile::OpId> copied_; // loads and stores that copies replace
  int loops_ = 0;               // nesting depth of loops at the insertion point
  // Stages of the last outermost loop with pipelined dot operands, which the next such loop may reuse; nesting depth of
  // these loops at the insertion point.
  int64_t region_ = 0, bytes_ = 0;
  int depth_ = 0;
};

} // namespace tessera::gpu
