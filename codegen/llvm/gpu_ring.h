// Products of warpgroups and the ring of their operands (codegen/layout/warpgroup.h). Private to codegen/llvm.
//
// The kernel's function divides behind its first block. The producer's branch has the loops that contain copies and the
// scalars that these need; one of its threads runs them. The consumers' branch has everything but the copied loads.
// Consumers are the first threads of the block, so their index is that of a block without producers, and all layouts
// stay as they are; their barriers are those of a part of the block.
//
// In a cluster (WarpgroupPlan::cluster) the producer of each block copies its share of a shared tile to all blocks. So a
// stage is empty when the consumers of all blocks have read theirs: they arrive at each block's barrier. A cluster barrier
// of all threads stands behind the initialisation of the mbarriers, and one at the kernel's end.
#pragma once
#include "codegen/llvm/gpu_convert.h"
#include "codegen/llvm/gpu_shared.h"

namespace tessera::gpu {

class Ring final : Part {
public:
  Ring(Context& context, Words& words, Conversions& conversions, Operations& operations)
      : Part(context), words_(words), conversions_(conversions), operations_(operations) {}

  [[nodiscard]] bool is_used() const { return plan_ != nullptr; }
  [[nodiscard]] int cluster() const { return plan_ ? plan_->cluster : 1; } // blocks
  // Before begin(): shared memory of the stages, and tensor maps. Error CodegenError if the stages do not fit.
  Status reserve();
  // Behind begin(): initialises the barriers and emits the producer. The consumers' code follows.
  Status divide();
  // Behind the consumers' code.
  void end();
  // True for operations that only copies need: they have no code in the consumers' branch.
  [[nodiscard]] bool is_dropped(tile::OpId id) const { return dropped_.contains(id); }

  [[nodiscard]] const layout::RingLoop* loop(tile::OpId id) const { return plan_ ? plan_->loop(id) : nullptr; }
  [[nodiscard]] bool computes(tile::OpId dot) const { return plan_ && plan_->has_product(dot); }
  // The ring's state, stage and parity, passes through these loops with their carried values.
  [[nodiscard]] bool passes(tile::OpId loop) const { return plan_ && plan_->carries_ring(loop); }
  [[nodiscard]] Registers state() const { return {stage_, parity_}; }
  void set_state(const Registers& state) {
    stage_ = state[0];
    parity_ = state[1];
  }

  // The consumers' part of an iteration: waits for the stage; loads tiles that left factors are computed from; starts a
  // product, and behind the last one waits for those that the iteration reads; lets products run on, and releases the stage
  // of the iteration before, if there was one in this loop: if the induction value `i` is not `from`. With a computed left
  // factor it waits for all products, and releases their own stage.
  void start_iteration(const layout::RingLoop& loop, Value* i, Value* from);
  [[nodiscard]] bool is_read(tile::OpId load) const { return plan_ && plan_->is_read(load); }
  void load(tile::OpId id);
  void multiply(tile::OpId dot);
  void finish_iteration();
  // Behind the last of at least one iteration: the accumulators with their values.
  Registers drain(const Registers& accumulators);

private:
  struct Factor;
  [[nodiscard]] Factor factor(const layout::RingTile& tile, int64_t start_step, Value* index) const;
  Status produce(const std::vector<tile::OpId>& ops);
  Status produce_loop(tile::OpId id);
  void fill(const layout::RingLoop& loop);
  void copy(const layout::RingTile& tile, Value* stage, Value* barrier);
  [[nodiscard]] Value* evaluate(const layout::Polynomial& polynomial);
  [[nodiscard]] Value* full(Value* stage);
  [[nodiscard]] Value* empty(Value* stage);
  void advance();
  void release_previous(Value* predicate);
  void release_iteration_before();
  const Registers& left_factor(tile::ValueId factor);
  [[nodiscard]] int arrivals() const;
  void end_products();
  void find_dropped();
  [[nodiscard]] std::pair<int, int> registers_by_role() const;

  Words& words_;
  Conversions& conversions_;
  Operations& operations_;
  const layout::WarpgroupPlan* plan_ = layouts_.warpgroups ? &*layouts_.warpgroups : nullptr;
  std::set<tile::OpId> dropped_;
  std::map<tile::OpId, size_t> map_of_; // by load
  int64_t stages_ = 0, barriers_ = 0;   // byte offsets of shared memory
  Value *stage_ = nullptr, *parity_ = nullptr;
  Value *leads_ = nullptr, *group_ = nullptr; // consumers: i1, a thread that arrives at empty stages; i32
  Value* there_ = nullptr;                    // of a cluster: i32, the rank of the block at whose stages it arrives
  const layout::RingLoop* current_ = nullptr;
  Value *i_ = nullptr, *from_ = nullptr; // induction values of the current iteration and of the loop's first one
  tile::ValueId left_ = -1;              // the computed left factor whose words the current iteration has
  Registers left_words_;                 // in the order of the instructions that read them
};

} // namespace tessera::gpu
