#include "codegen/emulate/block.h"
#include "codegen/emulate/cluster.h"
#include "codegen/tile/cooperation.h"
#include <algorithm>
#include <cstring>

namespace tessera::emu {

static std::string_view name(Access access) {
  return access == Access::Read ? "read" : access == Access::Write ? "write" : "atomic update";
}

Result<std::unique_ptr<Block>> Block::make(const Launch& launch, Cluster& cluster, int rank) {
  TESSERA_CHECK(launch.threads > 0 && launch.threads % kWarp == 0 && launch.threads <= 1024,
                "threads of a block: " + std::to_string(launch.threads));
  std::unique_ptr<Block> b(new Block(launch, cluster, rank));
  TESSERA_TRY(b->reserve());
  auto count = static_cast<size_t>(launch.threads);
  b->warps_.resize(count / kWarp);
  b->warpgroups_.resize(count / kWarpgroup);
  TESSERA_ASSIGN(b->shared_, Pages::reserve(static_cast<size_t>(launch.shared_bytes)));
  if (launch.asynchronous) b->async_ = std::make_unique<Asynchronous>(*b, cluster.order());
  if (launch.detect_races) {
    if (!b->async_) {
      TESSERA_ASSIGN(b->shared_history_, Histories::make(launch.shared_bytes));
    }
    TESSERA_ASSIGN(b->global_history_, Histories::make(launch.memory->written_bytes()));
  }
  return b;
}

void Block::begin(int64_t index) {
  ++epoch; // accesses of an earlier block are ordered before this one's
  arrived_ = 0;
  for (auto& w : warps_) w.arrived = 0;
  for (auto& g : warpgroups_) g.arrived = 0;
  copies_.begin(launch_.shared_bytes);
  if (async_) async_->begin();
  if (launch_.poison_shared && launch_.shared_bytes > 0) // NaN as f32, f16, bf16 and f64
    std::memset(shared_.data(), 0xff, static_cast<size_t>(launch_.shared_bytes));
  start(index, *this, epoch);
}

void Block::begin_epoch() {
  ++epoch;
  for (auto& t : threads_) t.epoch = epoch;
}

int64_t Block::order_place(int64_t offset) const { return rank_ * cluster_.shared_stride() + offset; }

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
  abort_if_failed(t);
  barrier_or_ |= value != 0 ? 1u : 0u;
  t.state = Thread::State::Waiting;
  if (++arrived_ < launch_.threads) {
    leave(t); // returns when all have arrived
    return t.result;
  }
  arrived_ = 0;
  if (site != launch_.ignored_barrier) {
    begin_epoch();
    if (async_) async_->order.barrier(agent(0), launch_.threads);
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
  abort_if_failed(t);
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
  abort_if_failed(t);
  return gather(t, warpgroups_[group], kWarpgroup, kind, site, "its warpgroup");
}

uint32_t Block::in_warp(Thread& t, Collective kind, int32_t site, uint32_t value, int32_t source) {
  auto lane = static_cast<size_t>(t.index % kWarp);
  int first = t.index - static_cast<int>(lane);
  auto& w = warps_[static_cast<size_t>(t.index / kWarp)];
  if (kind == Collective::Shuffle && (source < 0 || source >= kWarp))
    fail(t, "it reads from lane " + std::to_string(source) + " in " + at_site(kind, site));
  abort_if_failed(t);
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
    if (async_) async_->order.barrier(agent(first), kWarp);
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
    touch(t, offset, bytes, async_->order.now(t.agent), async_->order.of(t.agent), access, Proxy::Generic);
  else if (!copies_.refuse(t, offset, bytes) && launch_.detect_races)
    check_races(t, shared_history_, offset, bytes, access, false, where);
  abort_if_failed(t);
  return shared_.data() + offset;
}

void Block::touch(const Thread& t, int64_t offset, int64_t bytes, const Stamp& stamp, const Known& known, Access access,
                  Proxy proxy) {
  auto what = [&] {
    return "its " + std::string(name(access)) + " of " + std::to_string(bytes) + " bytes at offset " +
           std::to_string(offset) + " of shared memory" + (t.block == this ? "" : of_block());
  };
  if (offset < 0 || offset + bytes > launch_.shared_bytes)
    return fail(t, what() + " is outside of the block's " + std::to_string(launch_.shared_bytes) + " bytes");
  if (async_->mbarriers.overlaps(offset, bytes)) return fail(t, what() + " touches an mbarrier");
  if (copies_.refuse(t, offset, bytes)) return;
  const auto conflict = async_->order.touch(order_place(offset), bytes, stamp, known, access, proxy);
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
  if (launch_.cooperation && !failed())
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
  abort_if_failed(t);
  return address;
}

// One thread of the block calls this, behind a barrier of the block.
uint32_t Block::arrive(Thread& t, std::byte* counter, uint32_t amount, bool wait) {
  count_call(t);
  const auto* r = launch_.memory->find(counter);
  if (!r || !r->written || counter + sizeof(uint32_t) > r->begin + r->bytes ||
      reinterpret_cast<uintptr_t>(counter) % sizeof(uint32_t) != 0)
    fail(t, "its arrival counter is not 4 bytes of written memory, aligned to 4: " + launch_.memory->describe(counter));
  abort_if_failed(t);
  uint32_t sum = 0;
  if (auto arrived = launch_.cooperation->arrive(index_, counter, amount, wait))
    sum = *arrived;
  else
    fail(t, arrived.error().message);
  abort_if_failed(t);
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
