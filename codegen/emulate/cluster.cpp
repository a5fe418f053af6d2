#include "codegen/emulate/cluster.h"
#include <algorithm>

namespace tessera::emu {

Result<std::unique_ptr<Cluster>> Cluster::make(const Launch& launch) {
  std::unique_ptr<Cluster> c(new Cluster(launch));
  if (launch.asynchronous)
    c->order_.emplace(launch.cluster, launch.threads, c->shared_stride() * launch.cluster, launch.detect_races);
  for (int rank = 0; rank < launch.cluster; ++rank) {
    TESSERA_ASSIGN(auto block, Block::make(launch, *c, rank));
    c->blocks_.push_back(std::move(block));
  }
  return c;
}

int64_t Cluster::shared_stride() const {
  return (launch_.shared_bytes + Order::kUnit - 1) / Order::kUnit * Order::kUnit;
}

Status Cluster::run(int64_t index) {
  error_.reset();
  arrived_ = 0;
  turn_ = static_cast<Turn>((launch_.seed + static_cast<uint64_t>(index)) % 3);
  if (order_) order_->begin();
  for (int rank = 0; rank < size(); ++rank) blocks_[static_cast<size_t>(rank)]->begin(index * size() + rank);
  Fiber::switch_from_to(caller_, next()->fiber);
  for (const auto& b : blocks_)
    if (const std::string text = b->deadlock_text(); !text.empty()) fail(text);
  if (!failed()) check_ends();
  if (!failed()) return {};
  return std::move(*error_);
}

void Cluster::fail(const std::string& what) {
  if (!error_) error_ = Diagnostic(ErrorCode::CodegenError, "kernel '" + launch_.kernel + "', " + what);
}

Block* Cluster::find(Thread& t, int rank) {
  if (rank >= 0 && rank < size()) return blocks_[static_cast<size_t>(rank)].get();
  t.block->fail(t, "it accesses block " + std::to_string(rank) + " of a cluster of " + std::to_string(size()));
  return nullptr;
}

// Threads of all blocks may arrive in different places of the code.
void Cluster::barrier(Thread& t, int32_t site) {
  t.block->count_call(t);
  t.block->abort_if_failed(t);
  if (++arrived_ < size() * launch_.threads) return t.block->suspend(t, Collective::ClusterBarrier, site);
  arrived_ = 0;
  if (order_ && site != launch_.ignored_barrier) order_->barrier(0, size() * launch_.threads);
  for (const auto& b : blocks_) {
    if (site != launch_.ignored_barrier) b->begin_epoch();
    b->make_ready(0, launch_.threads, &t);
  }
}

// A block whose tensor copy completes before any thread runs: some when none can run, others as the seed has it.
Block* Cluster::copier(bool waits) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    auto& b = *blocks_[turn_ == Turn::Last ? blocks_.size() - 1 - i : i];
    if (b.asynchronous() && b.asynchronous()->copies.pending() && (waits || b.copies_at_once())) return &b;
  }
  return nullptr;
}

Thread* Cluster::next() {
  auto ready = [&] {
    return static_cast<size_t>(
        std::count_if(blocks_.begin(), blocks_.end(), [](const auto& b) { return b->has_ready(); }));
  };
  while (!failed()) {
    Block* copies = copier(ready() == 0);
    if (!copies) break;
    copies->asynchronous()->copies.complete_one();
  }
  const size_t count = failed() ? 0 : ready();
  if (count == 0) return nullptr;
  size_t turn = turn_ == Turn::Last ? count - 1 : turn_ == Turn::Any && count > 1 ? blocks_[0]->random() % count : 0;
  for (const auto& b : blocks_)
    if (b->has_ready() && turn-- == 0) return &b->take_ready();
  return nullptr;
}

// Arrivals and copies of other blocks at a block's mbarriers must have happened before some thread of the block ends.
void Cluster::check_ends() {
  if (!order_ || size() == 1) return;
  for (const auto& b : blocks_) {
    Known end;
    for (int i = 0; i < launch_.threads; ++i) end.merge(order_->of(b->agent(i)));
    for (const auto& [agent, time] : b->asynchronous()->mbarriers.from_others())
      if (end.events[agent] < time)
        fail("block " + std::to_string(b->index()) + ": it may end before " + order_->name(agent) +
             " reaches one of its mbarriers: no barrier of the cluster lies between them");
  }
}

} // namespace tessera::emu
