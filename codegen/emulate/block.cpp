#include "codegen/emulate/block.h"
#include "base/hash.h"
#include "codegen/tile/cooperation.h"
#include <algorithm>
#include <bit>
#include <cstring>

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

static std::string_view name(Access access) {
  return access == Access::Read ? "read" : access == Access::Write ? "write" : "atomic update";
}

static std::string at_site(Collective kind, int32_t site) {
  return "the " + std::string(name(kind)) + " at site " + std::to_string(site);
}

Result<std::unique_ptr<Block>> Block::make(const Launch& launch) {
  TESSERA_CHECK(launch.threads > 0 && launch.threads % kWarp == 0 && launch.threads <= 1024,
                "threads of a block: " + std::to_string(launch.threads));
  std::unique_ptr<Block> b(new Block(launch));
  TESSERA_ASSIGN(b->stacks_, Stacks::take(launch.threads));
  auto count = static_cast<size_t>(launch.threads);
  b->threads_.resize(count);
  b->warps_.resize(count / kWarp);
  b->warpgroups_.resize(count / kWarpgroup);
  b->ready_.resize(std::bit_ceil(count));
  b->ready_mask_ = b->ready_.size() - 1;
  TESSERA_ASSIGN(b->shared_, Pages::reserve(static_cast<size_t>(launch.shared_bytes)));
  if (launch.asynchronous)
    b->async_ = std::make_unique<Asynchronous>(*b, launch.threads, launch.shared_bytes, launch.detect_races);
  if (launch.detect_races) {
    if (!b->async_) {
      TESSERA_ASSIGN(b->shared_history_, Histories::make(launch.shared_bytes));
    }
    TESSERA_ASSIGN(b->global_history_, Histories::make(launch.memory->written_bytes()));
  }
  return b;
}

uint64_t Block::random() {
  random_ += 0x9e3779b97f4a7c15ull;
  return hash_combine(random_, launch_.seed);
}

Status Block::run(int64_t index) {
  index_ = index;
  ++epoch; // accesses of an earlier block are ordered before this one's
  ended_ = arrived_ = 0;
  random_ = static_cast<uint64_t>(index) * 2 + 1;
  order_ = static_cast<Order>((launch_.seed + static_cast<uint64_t>(index)) % 3);
  for (auto& w : warps_) w.arrived = 0;
  for (auto& g : warpgroups_) g.arrived = 0;
  copies_.begin(launch_.shared_bytes);
  if (async_) async_->begin();
  if (launch_.poison_shared && launch_.shared_bytes > 0) // NaN as f32, f16, bf16 and f64
    std::memset(shared_.data(), 0xff, static_cast<size_t>(launch_.shared_bytes));
  ready_begin_ = ready_count_ = 0;
  for (int i = 0; i < launch_.threads; ++i) {
    auto& t = threads_[static_cast<size_t>(i)];
    t.block = this;
    t.index = i;
    t.calls = 0;
    t.epoch = epoch;
    t.copies.clear();
    t.ends.clear();
    // Stacks start at different cache lines of a page, else all would map to the same few cache sets.
    size_t skip = static_cast<size_t>(i % 61) * 64;
    t.least = stacks_->least(i);
    t.fiber.start(stacks_->bottom(i), Stacks::kBytes - skip, &Block::enter, &t);
  }
  make_ready(0, launch_.threads, nullptr);
  auto* first = next();
  Fiber::switch_from_to(caller_, first->fiber);
  if (!error_ && ended_ < launch_.threads) error_ = Diagnostic(ErrorCode::CodegenError, deadlock_text());
  if (!error_) return {};
  auto error = std::move(*error_);
  error_.reset();
  return error;
}

void Block::enter(void* thread) {
  Fiber::entered();
  auto& t = *static_cast<Thread*>(thread);
  auto& b = *t.block;
  b.launch_.function(&t, b.launch_.args);
  if (b.async_) b.async_->end(t);
  if (b.error_) b.abort_block(t);
  t.state = Thread::State::Ended;
  ++b.ended_;
  b.leave(t);
}

// ---- order

void Block::make_ready(int first, int count, const Thread* except) {
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

void Block::wake(const std::vector<int>& threads) {
  for (size_t i = 0; i < threads.size(); ++i) {
    auto& t = thread(threads[launch_.seed % 2 ? threads.size() - 1 - i : i]);
    t.state = Thread::State::Ready;
    ready_[(ready_begin_ + ready_count_++) & ready_mask_] = static_cast<uint16_t>(t.index);
  }
}

void Block::suspend(Thread& t, Collective kind, int32_t site) {
  t.kind = kind;
  t.site = site;
  t.state = Thread::State::Waiting;
  leave(t);
}

// Copies complete when nothing else can happen, at once, or at any time.
Thread* Block::next() {
  while (async_ && !error_ && async_->copies.pending() &&
         (ready_count_ == 0 || order_ == Order::Last || (order_ == Order::Any && random() % 4 == 0)))
    async_->copies.complete_one();
  if (ready_count_ == 0 || error_) return nullptr;
  auto& front = ready_[ready_begin_];
  auto& back = ready_[(ready_begin_ + ready_count_ - 1) & ready_mask_];
  if (order_ == Order::Any) {
    size_t other = ((random() & 0xffffffff) * ready_count_) >> 32; // below the count
    std::swap(front, ready_[(ready_begin_ + other) & ready_mask_]);
  }
  --ready_count_;
  if (order_ == Order::Last) return &threads_[back];
  ready_begin_ = (ready_begin_ + 1) & ready_mask_;
  return &threads_[front];
}

void Block::leave(Thread& t) {
  auto* n = next();
  if (n == &t) return; // a copy's completion has made it ready
  Fiber::switch_from_to(t.fiber, n ? n->fiber : caller_);
}

void Block::fail(const Thread& t, const std::string& what) {
  if (!error_)
    error_ = Diagnostic(ErrorCode::CodegenError, "kernel '" + launch_.kernel + "', block " + std::to_string(index_) +
                                                     ", thread " + std::to_string(t.index) + ": " + what);
}

// Aborts the block: its fibers do not run again. No object with a destructor may be alive on the thread's stack.
void Block::abort_block(Thread& t) {
  Fiber::switch_from_to(t.fiber, caller_);
  TESSERA_UNREACHABLE("an aborted block");
}

void Block::count_call(Thread& t) {
  constexpr int64_t kMax = int64_t{1} << 28;
  if (++t.calls > kMax) fail(t, "it does not terminate");
}

void Block::stack_overflow(Thread& t) {
  fail(t, "its frame does not fit an emulated thread's stack of " + std::to_string(Stacks::kBytes >> 10) + " KB");
  abort_block(t);
}

// Text of a deadlock, in which no thread is ready and some have not ended: where each waits.
std::string Block::deadlock_text() const {
  std::string text = "kernel '" + launch_.kernel + "', block " + std::to_string(index_) +
                     ": deadlock: its threads wait in different places";
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
      text += " " + async_->mbarriers.state(t.waits_at);
    separator = ", ";
    i = end;
  }
  return text;
}

// ---- collectives

uint32_t Block::collective(Thread& t, Collective kind, int32_t site, uint32_t value, int32_t source) {
  count_call(t);
  t.kind = kind;
  t.site = site;
  bool block = kind == Collective::Barrier || kind == Collective::BarrierOr;
  return block ? in_block(t, kind, site, value) : in_warp(t, kind, site, value, source);
}

uint32_t Block::in_block(Thread& t, Collective kind, int32_t site, uint32_t value) {
  if (arrived_ == 0) {
    barrier_kind_ = kind;
    barrier_site_ = site;
    barrier_or_ = 0;
  } else if (barrier_kind_ != kind || barrier_site_ != site) {
    fail(t, "it reaches " + at_site(kind, site) + " while others of the block are in " +
                at_site(barrier_kind_, barrier_site_));
  }
  if (error_) abort_block(t);
  barrier_or_ |= value != 0 ? 1u : 0u;
  t.state = Thread::State::Waiting;
  if (++arrived_ < launch_.threads) {
    leave(t); // returns when all have arrived
    return t.result;
  }
  arrived_ = 0;
  if (site != launch_.ignored_barrier) {
    ++epoch;
    for (auto& other : threads_) other.epoch = epoch;
    if (async_) async_->order.barrier(0, launch_.threads);
  }
  ++barriers;
  barrier_sites.insert(site);
  for (auto& other : threads_) other.result = barrier_or_;
  make_ready(0, launch_.threads, &t);
  return t.result;
}

bool Block::gather(Thread& t, Gathering& g, int count, Collective kind, int32_t site, const char* of) {
  if (g.arrived == 0) {
    g.kind = kind;
    g.site = site;
  } else if (g.kind != kind || g.site != site) {
    fail(t, "it reaches " + at_site(kind, site) + " while others of " + of + " are in " + at_site(g.kind, g.site));
  }
  if (error_) abort_block(t);
  if (++g.arrived < count) {
    suspend(t, kind, site); // returns when all have arrived
    return false;
  }
  g.arrived = 0;
  return true;
}

bool Block::gather_warp(Thread& t, Collective kind, int32_t site) {
  count_call(t);
  return gather(t, warps_[static_cast<size_t>(t.index / kWarp)], kWarp, kind, site, "its warp");
}

void Block::scatter_warp(const Thread& t) {
  ++warps_[static_cast<size_t>(t.index / kWarp)].exchange_epoch;
  make_ready(t.index / kWarp * kWarp, kWarp, &t);
}

bool Block::gather_warpgroup(Thread& t, Collective kind, int32_t site) {
  count_call(t);
  const auto group = static_cast<size_t>(t.index / kWarpgroup);
  if (group >= warpgroups_.size()) fail(t, "it is in no whole warpgroup and reaches " + at_site(kind, site));
  if (error_) abort_block(t);
  return gather(t, warpgroups_[group], kWarpgroup, kind, site, "its warpgroup");
}

uint32_t Block::in_warp(Thread& t, Collective kind, int32_t site, uint32_t value, int32_t source) {
  auto lane = static_cast<size_t>(t.index % kWarp);
  int first = t.index - static_cast<int>(lane);
  auto& w = warps_[static_cast<size_t>(t.index / kWarp)];
  if (kind == Collective::Shuffle && (source < 0 || source >= kWarp))
    fail(t, "it reads from lane " + std::to_string(source) + " in " + at_site(kind, site));
  if (error_) abort_block(t);
  w.value[lane] = value;
  w.source[lane] = source;
  if (!gather(t, w, kWarp, kind, site, "its warp")) return t.result;
  auto* lanes = &threads_[static_cast<size_t>(first)];
  if (kind == Collective::Shuffle) {
    for (size_t l = 0; l < kWarp; ++l) lanes[l].result = w.value[static_cast<size_t>(w.source[l])];
    ++shuffles;
  } else {
    uint32_t votes = 0;
    for (size_t l = 0; l < kWarp; ++l) votes |= (w.value[l] != 0 ? 1u : 0u) << l;
    for (size_t l = 0; l < kWarp; ++l) lanes[l].result = votes;
  }
  if (kind == Collective::WarpBarrier) {
    ++w.epoch;
    if (async_) async_->order.barrier(first, kWarp);
  }
  scatter_warp(t);
  return t.result;
}

// ---- memory

template <class Where>
void Block::check_races(Thread& t, Histories& histories, int64_t at, int bytes, Access access, bool global,
                        const Where& where) {
  const auto& w = warps_[static_cast<size_t>(t.index / kWarp)];
  AccessPoint point{t.index, t.epoch, w.epoch, global ? w.exchange_epoch : w.epoch};
  auto race = histories.touch(at, bytes, point, access, global);
  if (race.other < 0) return;
  auto other = race.other == t.index ? "another thread" : "thread " + std::to_string(race.other);
  fail(t, "its " + std::string(name(access)) + " of " + std::to_string(bytes) + " bytes at " + where() +
              " is not ordered with the " + std::string(name(race.earlier)) + " by " + other +
              ": no barrier lies between them");
}

void* Block::shared(Thread& t, int64_t offset, int bytes, Access access) {
  count_call(t);
  auto where = [&] { return "offset " + std::to_string(offset) + " of shared memory"; };
  if (offset < 0 || offset + bytes > launch_.shared_bytes)
    fail(t, "its " + std::string(name(access)) + " of " + std::to_string(bytes) + " bytes at " + where() +
                " is outside of the block's " + std::to_string(launch_.shared_bytes) + " bytes");
  else if (offset % bytes != 0)
    fail(t, "its " + std::string(name(access)) + " of " + std::to_string(bytes) + " bytes at " + where() +
                " is not aligned");
  else if (async_)
    touch(t, offset, bytes, async_->order.now(t.index), async_->order.of(t.index), access, Proxy::Generic);
  else if (!copies_.refuse(t, offset, bytes) && launch_.detect_races)
    check_races(t, shared_history_, offset, bytes, access, false, where);
  if (error_) abort_block(t);
  return shared_.data() + offset;
}

void Block::touch(const Thread& t, int64_t offset, int64_t bytes, const Stamp& stamp, const Known& known, Access access,
                  Proxy proxy) {
  auto what = [&] {
    return "its " + std::string(name(access)) + " of " + std::to_string(bytes) + " bytes at offset " +
           std::to_string(offset) + " of shared memory";
  };
  if (offset < 0 || offset + bytes > launch_.shared_bytes)
    return fail(t, what() + " is outside of the block's " + std::to_string(launch_.shared_bytes) + " bytes");
  if (async_->mbarriers.overlaps(offset, bytes)) return fail(t, what() + " touches an mbarrier");
  if (copies_.refuse(t, offset, bytes)) return;
  const auto conflict = async_->order.touch(offset, bytes, stamp, known, access, proxy);
  if (!conflict) return;
  const auto& other = async_->order.name(conflict->other.agent);
  if (conflict->lacks_fence)
    return fail(t, what() + " by the asynchronous proxy follows the write by " + other +
                       ": no fence of the proxies lies between them");
  fail(t, what() + " is not ordered with the " + std::string(name(conflict->earlier)) + " by " + other +
              ": no barrier lies between them");
}

void Block::check_global(Thread& t, const std::byte* address, int bytes, Access access) {
  const auto* r = launch_.memory->find(address);
  auto access_text = [&] { return "its " + std::string(name(access)) + " of " + std::to_string(bytes) + " bytes of "; };
  if (!r)
    return fail(t, access_text() + "global memory is outside of every argument: " + launch_.memory->describe(address));
  int64_t offset = address - r->begin;
  auto where = [&] { return "byte " + std::to_string(offset) + " of " + r->names; };
  if (offset + bytes > r->bytes)
    return fail(t, access_text() + r->names + " at byte " + std::to_string(offset) + " goes beyond its " +
                       std::to_string(r->bytes) + " bytes");
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) != 0)
    return fail(t, access_text() + r->names + " at byte " + std::to_string(offset) + " is not aligned");
  if (access != Access::Read && !r->written)
    return fail(t, access_text() + r->names + ", which is not marked as written");
  if (launch_.detect_races && r->written)
    check_races(t, global_history_, r->history_start + offset, bytes, access, true, where);
}

void Block::access_global(Thread& t, std::byte* address, int bytes, Access access) {
  check_global(t, address, bytes, access);
  if (launch_.cooperation && !error_)
    if (const auto* r = launch_.memory->find(address); r->written) {
      auto other = launch_.cooperation->touch(index_, r->history_start + (address - r->begin), bytes, access);
      if (other >= 0)
        fail(t, "its " + std::string(name(access)) + " of " + std::to_string(bytes) + " bytes at byte " +
                    std::to_string(address - r->begin) + " of " + r->names +
                    " is not ordered with an access by block " + std::to_string(other) +
                    ": no arrival or grid barrier lies between them");
    }
}

void* Block::global(Thread& t, std::byte* address, int bytes, Access access) {
  count_call(t);
  access_global(t, address, bytes, access);
  if (error_) abort_block(t);
  return address;
}

// One thread of the block calls this, behind a barrier of the block.
uint32_t Block::arrive(Thread& t, std::byte* counter, uint32_t amount, bool wait) {
  count_call(t);
  const auto* r = launch_.memory->find(counter);
  if (!r || !r->written || counter + sizeof(uint32_t) > r->begin + r->bytes ||
      reinterpret_cast<uintptr_t>(counter) % sizeof(uint32_t) != 0)
    fail(t, "its arrival counter is not 4 bytes of written memory, aligned to 4: " + launch_.memory->describe(counter));
  if (error_) abort_block(t);
  uint32_t sum = 0;
  if (auto arrived = launch_.cooperation->arrive(index_, counter, amount, wait))
    sum = *arrived;
  else
    fail(t, arrived.error().message);
  if (error_) abort_block(t);
  return sum;
}

} // namespace tessera::emu

// ---- functions of emulated_abi.h

using tessera::emu::Access;
using tessera::emu::Collective;
using tessera::emu::Thread;

static Thread& self(void* thread) { return tessera::emu::Block::self(thread); }
static Access access_of(int32_t bits) {
  return (bits & kTesseraEmuAtomic) != 0  ? Access::Atomic
         : (bits & kTesseraEmuWrite) != 0 ? Access::Write
                                          : Access::Read;
}

int32_t tessera_emu_thread_index(void* thread) { return self(thread).index; }
int64_t tessera_emu_block_index(void* thread, int32_t axis) {
  const auto place = self(thread).block->place();
  return place.grid.index(place.number, axis);
}
int64_t tessera_emu_block_count(void* thread, int32_t axis) { return self(thread).block->place().grid[axis]; }
void tessera_emu_barrier(void* thread, int32_t site) {
  self(thread).block->collective(self(thread), Collective::Barrier, site, 0, 0);
}
int32_t tessera_emu_barrier_or(void* thread, int32_t predicate, int32_t site) {
  return static_cast<int32_t>(
      self(thread).block->collective(self(thread), Collective::BarrierOr, site, static_cast<uint32_t>(predicate), 0));
}
uint32_t tessera_emu_shuffle(void* thread, uint32_t value, int32_t source_lane, int32_t site) {
  return self(thread).block->collective(self(thread), Collective::Shuffle, site, value, source_lane);
}
uint32_t tessera_emu_ballot(void* thread, int32_t predicate, int32_t site) {
  return self(thread).block->collective(self(thread), Collective::Ballot, site, static_cast<uint32_t>(predicate), 0);
}
void tessera_emu_warp_barrier(void* thread, int32_t site) {
  self(thread).block->collective(self(thread), Collective::WarpBarrier, site, 0, 0);
}
uint32_t tessera_emu_arrive(void* thread, void* counter, uint32_t amount, int32_t wait) {
  return self(thread).block->arrive(self(thread), static_cast<std::byte*>(counter), amount, wait != 0);
}
void tessera_emu_send(void* thread, void* address, uint32_t first, uint32_t second, uint32_t third) {
  const uint32_t payload[] = {first, second, third};
  self(thread).block->packets().send(self(thread), static_cast<std::byte*>(address), payload);
}
void tessera_emu_await(void* thread, void* address) {
  self(thread).block->packets().await(self(thread), static_cast<std::byte*>(address));
}
void tessera_emu_receive(void* thread, void* address, uint32_t* payload) {
  self(thread).block->packets().receive(self(thread), static_cast<std::byte*>(address), payload);
}
void* tessera_emu_shared(void* thread, int32_t offset, int32_t bytes, int32_t access) {
  return self(thread).block->shared(self(thread), offset, bytes, access_of(access));
}
void* tessera_emu_global(void* thread, void* address, int32_t bytes, int32_t access) {
  return self(thread).block->global(self(thread), static_cast<std::byte*>(address), bytes, access_of(access));
}
