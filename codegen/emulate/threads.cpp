#include "codegen/emulate/threads.h"
#include "base/hash.h"
#include "codegen/emulate/block.h"
#include "codegen/emulate/cluster.h"
#include <bit>

namespace tessera::emu {

std::string_view name(Collective kind) {
  switch (kind) {
  case Collective::Barrier: return "barrier";
  case Collective::BarrierOr: return "barrier with vote";
  case Collective::Shuffle: return "shuffle";
  case Collective::Ballot: return "ballot";
  case Collective::WarpBarrier: return "warp barrier";
  case Collective::LoadMatrices: return "load of matrices";
  case Collective::StoreMatrices: return "store of matrices";
  case Collective::Multiply: return "product of matrices";
  case Collective::ClusterBarrier: return "cluster barrier";
  case Collective::MbarrierWait: return "wait for an mbarrier";
  case Collective::NumberedBarrier: return "numbered barrier";
  case Collective::SetRegisters: return "change of registers";
  case Collective::BeginProducts: return "fence of products";
  case Collective::MultiplyWarpgroup: return "product of a warpgroup";
  case Collective::CommitProducts: return "commit of products";
  case Collective::WaitForProducts: return "wait for products";
  }
  return "collective";
}

std::string at_site(Collective kind, int32_t site) {
  return "the " + std::string(name(kind)) + " at site " + std::to_string(site);
}

Status BlockThreads::reserve() {
  TESSERA_ASSIGN(stacks_, Stacks::take(launch_.threads));
  ready_.resize(std::bit_ceil(threads_.size()));
  ready_mask_ = ready_.size() - 1;
  return {};
}

void BlockThreads::start(int64_t index, Block& b, uint32_t epoch) {
  index_ = index;
  ended_ = 0;
  random_ = static_cast<uint64_t>(index) * 2 + 1;
  order_ = static_cast<Order>((launch_.seed + static_cast<uint64_t>(index)) % 3);
  ready_begin_ = ready_count_ = 0;
  for (int i = 0; i < launch_.threads; ++i) {
    auto& t = thread(i);
    t.block = &b;
    t.index = i;
    t.agent = agent(i);
    t.calls = 0;
    t.epoch = epoch;
    t.copies.clear();
    t.ends.clear();
    // Stacks start at different cache lines of a page, else all would map to the same few cache sets.
    size_t skip = static_cast<size_t>(i % 61) * 64;
    t.least = stacks_->least(i);
    t.fiber.start(stacks_->bottom(i), Stacks::kBytes - skip, &BlockThreads::enter, &t);
  }
  make_ready(0, launch_.threads, nullptr);
}

void BlockThreads::enter(void* thread) {
  Fiber::entered();
  auto& t = *static_cast<Thread*>(thread);
  Block& b = *t.block;
  b.launch_.function(&t, b.launch_.args);
  if (auto* parts = b.asynchronous()) parts->end(t);
  b.abort_if_failed(t);
  BlockThreads& threads = b;
  t.state = Thread::State::Ended;
  ++threads.ended_;
  b.leave(t);
}

uint64_t BlockThreads::random() {
  random_ += 0x9e3779b97f4a7c15ull;
  return hash_combine(random_, launch_.seed);
}

void BlockThreads::make_ready(int first, int count, const Thread* except) {
  auto n = static_cast<unsigned>(count);
  unsigned at = 0, stride = 1;
  if (launch_.seed != 0) {
    auto r = random();
    at = static_cast<unsigned>(r) % n;
    bool power_of_two = (n & (n - 1)) == 0; // then an odd stride visits all threads
    if (power_of_two && n > 1) stride = (static_cast<unsigned>(r >> 32) | 1) & (n - 1);
  }
  for (unsigned i = 0; i < n; ++i) {
    auto& t = threads_[static_cast<unsigned>(first) + at];
    t.state = Thread::State::Ready;
    if (&t != except) ready_[(ready_begin_ + ready_count_++) & ready_mask_] = static_cast<uint16_t>(t.index);
    at += stride;
    if (at >= n) at -= n;
  }
}

void BlockThreads::wake(const std::vector<int>& threads) {
  for (size_t i = 0; i < threads.size(); ++i) {
    auto& t = thread(threads[launch_.seed % 2 ? threads.size() - 1 - i : i]);
    t.state = Thread::State::Ready;
    ready_[(ready_begin_ + ready_count_++) & ready_mask_] = static_cast<uint16_t>(t.index);
  }
}

void BlockThreads::suspend(Thread& t, Collective kind, int32_t site) {
  t.kind = kind;
  t.site = site;
  t.state = Thread::State::Waiting;
  leave(t);
}

Thread& BlockThreads::take_ready() {
  auto& front = ready_[ready_begin_];
  auto& back = ready_[(ready_begin_ + ready_count_ - 1) & ready_mask_];
  if (order_ == Order::Any) {
    size_t other = ((random() & 0xffffffff) * ready_count_) >> 32; // below the count
    std::swap(front, ready_[(ready_begin_ + other) & ready_mask_]);
  }
  --ready_count_;
  if (order_ == Order::Last) return threads_[back];
  ready_begin_ = (ready_begin_ + 1) & ready_mask_;
  return threads_[front];
}

void BlockThreads::leave(Thread& t) {
  auto* n = cluster_.next();
  if (n == &t) return; // a copy's completion has made it ready
  Fiber::switch_from_to(t.fiber, n ? n->fiber : cluster_.caller());
}

std::string BlockThreads::of_block() const {
  return launch_.cluster == 1 ? "" : " of block " + std::to_string(rank_) + " of the cluster";
}

void BlockThreads::fail(const Thread& t, const std::string& what) {
  cluster_.fail("block " + std::to_string(t.block->index()) + ", thread " + std::to_string(t.index) + ": " + what);
}
bool BlockThreads::failed() const { return cluster_.failed(); }

void BlockThreads::abort(Thread& t) {
  Fiber::switch_from_to(t.fiber, cluster_.caller());
  TESSERA_UNREACHABLE("an aborted block");
}

void BlockThreads::stack_overflow(Thread& t) {
  fail(t, "its frame does not fit an emulated thread's stack of " + std::to_string(Stacks::kBytes >> 10) + " KB");
  abort(t);
}

void BlockThreads::count_call(Thread& t) {
  constexpr int64_t kMax = int64_t{1} << 28;
  if (++t.calls > kMax) fail(t, "it does not terminate");
}

std::string BlockThreads::deadlock_text() {
  if (ended()) return "";
  std::string text = "block " + std::to_string(index_) + ": deadlock: its threads wait in different places";
  const char* separator = ": ";
  for (size_t i = 0; i < threads_.size();) {
    const auto& t = threads_[i];
    size_t end = i + 1;
    auto same = [&](const Thread& other) {
      return other.state == t.state && (t.state == Thread::State::Ended ||
                                        (other.kind == t.kind && other.site == t.site &&
                                         (t.kind != Collective::MbarrierWait || other.waits_at == t.waits_at)));
    };
    while (end < threads_.size() && same(threads_[end])) ++end;
    text += separator;
    text += end == i + 1 ? "thread " + std::to_string(i)
                         : "threads " + std::to_string(i) + " to " + std::to_string(end - 1);
    bool one = end == i + 1;
    if (t.state == Thread::State::Ended)
      text += one ? " has ended" : " have ended";
    else
      text += (one ? " is in " : " are in ") + at_site(t.kind, t.site);
    if (t.state != Thread::State::Ended && t.kind == Collective::MbarrierWait)
      text += " " + t.block->asynchronous()->mbarriers.state(t.waits_at);
    separator = ", ";
    i = end;
  }
  return text;
}

} // namespace tessera::emu
