#include "codegen/emulate/mbarriers.h"
#include "codegen/emulate/block.h"
#include <algorithm>

namespace tessera::emu {

constexpr int kMaxArrivals = (1 << 20) - 1;

// As the thread sees it.
std::string Mbarriers::named(int64_t offset, const Thread& t) const {
  return "the mbarrier at offset " + std::to_string(offset) + (t.block == &block_ ? "" : block_.of_block());
}

void Mbarriers::begin() {
  mbarriers_.clear();
  from_others_.clear();
  for (auto& n : numbered_) n = {};
  const int threads = block_.launch().threads;
  const int at_launch = block_.launch().launch_registers;
  registers_.assign(static_cast<size_t>((threads + kWarpgroup - 1) / kWarpgroup), {at_launch, false, 0});
  free_registers_ = 0;
}

Mbarriers::Mbarrier* Mbarriers::find(const Thread& t, int64_t offset, const char* what) {
  auto it = mbarriers_.find(offset);
  if (it == mbarriers_.end()) {
    block_.fail(t, std::string("it ") + what + " " + named(offset, t) + ", which is not initialised");
    return nullptr;
  }
  auto& m = it->second;
  if (order_.of(t.agent).events[m.initialised.agent] >= m.initialised.time) return &m;
  block_.fail(t, std::string("it ") + what + " " + named(offset, t) + ", whose initialisation by " +
                     order_.name(m.initialised.agent) + " is not ordered before: no barrier lies between them");
  return nullptr;
}

void Mbarriers::init(Thread& t, int64_t offset, int arrivals) {
  if (arrivals < 1 || arrivals > kMaxArrivals)
    return block_.fail(t, "it initialises " + named(offset, t) + " for " + std::to_string(arrivals) + " arrivals");
  if (offset % kBytes != 0) return block_.fail(t, "it initialises " + named(offset, t) + ", which is not aligned");
  if (overlaps(offset, kBytes)) return block_.fail(t, "it initialises " + named(offset, t) + " a second time");
  block_.touch(t, offset, kBytes, order_.now(t.agent), order_.of(t.agent), Access::Write, Proxy::Generic);
  auto& m = mbarriers_[offset];
  m.agent = order_.add_agent("a copy for " + named(offset, t) + block_.of_block());
  m.initialiser = t.index;
  m.arrivals = m.pending = arrivals;
  m.initialised = order_.now(t.agent);
}

void Mbarriers::fence_init(const Thread& t) {
  for (auto& [offset, m] : mbarriers_) m.fenced = m.fenced || m.initialiser == t.index;
}

void Mbarriers::take_arrival(const Thread& t, int64_t offset, Mbarrier& m) {
  if (m.pending == 0)
    return block_.fail(t, "it arrives at " + named(offset, t) + " more than " + std::to_string(m.arrivals) +
                              " times in phase " + std::to_string(m.phase));
  --m.pending;
  complete_if_done(m);
}

void Mbarriers::arrive(Thread& t, int64_t offset, int64_t expected_bytes) {
  auto* m = find(t, offset, "arrives at");
  if (!m) return;
  if (t.block != &block_) from_others_[t.agent] = order_.now(t.agent).time;
  order_.release(t.agent, m->arriving);
  m->bytes += expected_bytes;
  take_arrival(t, offset, *m);
}

void Mbarriers::complete_if_done(Mbarrier& m) {
  if (m.pending != 0 || m.bytes != 0) return;
  ++m.phase;
  m.pending = m.arrivals;
  m.released.merge(m.arriving);
  m.released.events.advance(m.agent, m.phase);
  m.arriving.clear();
  block_.wake(m.waiting);
  m.waiting.clear();
}

void Mbarriers::wait(Thread& t, int64_t offset, uint32_t parity, int32_t site) {
  auto* m = find(t, offset, "waits for");
  if (m && parity > 1) block_.fail(t, "it waits for parity " + std::to_string(parity) + " of " + named(offset, t));
  if (block_.failed()) return;
  while (m->phase % 2 == parity) {
    m->waiting.push_back(t.index);
    t.waits_at = offset;
    block_.suspend(t, Collective::MbarrierWait, site);
  }
  order_.acquire(t.agent, m->released);
}

std::optional<Stamp> Mbarriers::begin_copy(const Thread& t, int64_t offset, bool of_tensor) {
  auto* m = find(t, offset, "copies for");
  if (!m) return {};
  if (of_tensor && !m->fenced) {
    block_.fail(t, "it copies for " + named(offset, t) + ", whose initialisation no fence followed");
    return {};
  }
  if (t.block != &block_) from_others_[m->agent] = m->phase + 1;
  return Stamp{m->agent, m->phase + 1};
}

void Mbarriers::complete_copy(const Thread& t, int64_t offset, const Stamp& stamp, int64_t bytes) {
  auto& m = mbarriers_.at(offset);
  if (m.phase + 1 != stamp.time)
    return block_.fail(t, "its copy for phase " + std::to_string(stamp.time - 1) + " of " + named(offset, t) +
                              " completes in phase " + std::to_string(m.phase) +
                              ": the phase expected fewer bytes than are copied");
  m.bytes -= bytes;
  complete_if_done(m);
}

void Mbarriers::complete_arrival(const Thread& t, int64_t offset) { take_arrival(t, offset, mbarriers_.at(offset)); }

bool Mbarriers::overlaps(int64_t at, int64_t bytes) const {
  auto it = mbarriers_.lower_bound(at - kBytes + 1);
  return it != mbarriers_.end() && it->first < at + bytes;
}

std::string Mbarriers::state(int64_t offset) const {
  const auto& m = mbarriers_.at(offset);
  std::string text = "at offset " + std::to_string(offset) + ", where of phase " + std::to_string(m.phase) + " " +
                     std::to_string(m.pending) + " of " + std::to_string(m.arrivals) + " arrivals";
  if (m.bytes > 0) text += " and " + std::to_string(m.bytes) + " bytes";
  text += " are missing";
  if (m.bytes < 0) text += " and " + std::to_string(-m.bytes) + " bytes were not expected";
  return text;
}

void Mbarriers::join(Thread& t, int id, int threads, bool wait, int32_t site) {
  auto text = [&] { return "barrier " + std::to_string(id) + " of " + std::to_string(threads) + " threads"; };
  if (id < 1 || id >= static_cast<int>(numbered_.size()) || threads <= 0 || threads % kWarp != 0 ||
      threads > block_.launch().threads)
    return block_.fail(t, "it joins " + text() + ", which does not exist");
  auto& n = numbered_[static_cast<size_t>(id)];
  if (n.arrived > 0 && n.threads != threads)
    return block_.fail(t, "it joins " + text() + " while others join one of " + std::to_string(n.threads));
  n.threads = threads;
  order_.release(t.agent, n.arriving);
  if (++n.arrived < threads) {
    if (!wait) return;
    n.waiting.push_back(t.index);
    block_.suspend(t, Collective::NumberedBarrier, site);
    return;
  }
  std::vector<int> joined = n.waiting;
  if (wait) joined.push_back(t.index);
  ++block_.epoch;
  for (const int i : joined) {
    order_.acquire(block_.agent(i), n.arriving);
    block_.thread(i).epoch = block_.epoch;
  }
  block_.wake(n.waiting);
  n.waiting.clear();
  n.arriving.clear();
  n.arrived = 0;
}

// The launch gives each thread the same number of registers. Those that a warpgroup gives back are free for others,
// which wait for them.
void Mbarriers::set_registers(Thread& t, int count, bool raise, int32_t site) {
  const int first = t.index / kWarpgroup * kWarpgroup;
  auto& r = registers_[static_cast<size_t>(t.index / kWarpgroup)];
  if (count < 24 || count > 256 || count % 8 != 0)
    block_.fail(t, "it sets its registers to " + std::to_string(count) + ", which is no multiple of 8 from 24 to 256");
  else if (r.count > 0 && (raise ? count < r.count : count > r.count))
    block_.fail(t, std::string("it ") + (raise ? "raises" : "lowers") + " its registers from " +
                       std::to_string(r.count) + " to " + std::to_string(count));
  if (block_.failed()) return;
  t.value = static_cast<uint32_t>(count);
  if (!block_.gather_warpgroup(t, Collective::SetRegisters, site)) return;
  for (int i = first; i < first + kWarpgroup; ++i)
    if (block_.thread(i).value != t.value)
      return block_.fail(t, "its warpgroup sets its registers to different numbers");
  if (r.count == 0) return block_.scatter_warpgroup(t); // not known
  r.wanted = count;
  r.waits = true;
  hand_out_registers(t);
  if (r.waits) block_.suspend(t, Collective::SetRegisters, site); // with its warpgroup
}

// In the order of warpgroups.
void Mbarriers::hand_out_registers(const Thread& running) {
  for (bool again = true; again;) {
    again = false;
    for (size_t g = 0; g < registers_.size(); ++g) {
      auto& r = registers_[g];
      const int64_t more = int64_t{r.wanted - r.count} * kWarpgroup;
      if (!r.waits || more > free_registers_) continue;
      free_registers_ -= more;
      r.count = r.wanted;
      r.waits = false;
      again = true;
      block_.make_ready(static_cast<int>(g) * kWarpgroup, kWarpgroup, &running);
    }
  }
}

} // namespace tessera::emu
