#include "runtime/memory_plan.h"
#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

namespace tessera {
namespace {

constexpr int64_t kMaxArena = int64_t{1} << 56;
constexpr size_t kGreedyLimit = 1536; // slots; above, only the placement by time

// Buffers that share memory by taking it over from each other.
struct Slot {
  int64_t bytes = 0;
  int first = 0, last = 0;
  int64_t offset = 0;
  int lent = -1;
};

std::vector<size_t> largest_first(const std::vector<Slot>& slots) {
  std::vector<size_t> order(slots.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (slots[a].bytes != slots[b].bytes) return slots[a].bytes > slots[b].bytes;
    return slots[a].last - slots[a].first > slots[b].last - slots[b].first; // of equal size, the one that lives longer
  });
  return order;
}

// A block and the slots in it, by offset.
class Placed {
public:
  // The start of the smallest gap that the slot fits into among those that live with it, else the end of the last one.
  [[nodiscard]] int64_t place_for(const Slot& s) const {
    int64_t best = -1, best_gap = 0, end = 0;
    for (const Slot* p : slots_) {
      if (p->last < s.first || s.last < p->first) continue;
      int64_t gap = p->offset - end;
      if (gap >= s.bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, p->offset + p->bytes);
    }
    return best >= 0 ? best : end;
  }
  void add(Slot& s, int64_t offset) {
    s.offset = offset;
    auto at = std::upper_bound(slots_.begin(), slots_.end(), &s,
                               [](const Slot* a, const Slot* b) { return a->offset < b->offset; });
    slots_.insert(at, &s);
  }

private:
  std::vector<const Slot*> slots_;
};

int64_t place_by_size(std::vector<Slot>& slots) {
  Placed placed;
  int64_t total = 0;
  for (size_t i : largest_first(slots)) {
    placed.add(slots[i], placed.place_for(slots[i]));
    total = std::max(total, slots[i].offset + slots[i].bytes);
  }
  return total;
}

// Slots into lent memory, each into the smallest that has room for it. Most of them: none where there are too many.
void place_in_lent(std::vector<Slot>& slots, std::span<const Lent> lent) {
  if (lent.empty() || slots.size() > kGreedyLimit) return;
  std::vector<size_t> by_size(lent.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return lent[a].bytes < lent[b].bytes; });
  std::vector<Placed> placed(lent.size());
  for (size_t i : largest_first(slots)) {
    Slot& s = slots[i];
    if (s.bytes == 0) continue;
    const auto large = std::lower_bound(by_size.begin(), by_size.end(), s.bytes,
                                        [&](size_t l, int64_t bytes) { return lent[l].bytes < bytes; });
    for (auto l = large; l != by_size.end(); ++l) {
      if (s.first < lent[*l].first || s.last > lent[*l].last) continue;
      const int64_t offset = placed[*l].place_for(s);
      if (offset + s.bytes > lent[*l].bytes) continue;
      placed[*l].add(s, offset);
      s.lent = static_cast<int>(*l);
      break;
    }
  }
}

// Free ranges of an arena that grows at its end, by offset. Between two of them lies something that is taken: there are
// no more than slots that live at the same time, and one.
class FreeList {
public:
  // At the start of the smallest range that is large enough; of equal ones the first.
  int64_t take(int64_t bytes) {
    auto best = ranges_.end();
    for (auto it = ranges_.begin(); it != ranges_.end(); ++it)
      if (it->bytes >= bytes && (best == ranges_.end() || it->bytes < best->bytes)) best = it;
    if (best != ranges_.end()) {
      const int64_t offset = best->offset;
      if (best->bytes > bytes)
        *best = {offset + bytes, best->bytes - bytes};
      else
        ranges_.erase(best);
      return offset;
    }
    // Nothing fits: grow, from the free range that touches the end when there is one.
    int64_t offset = end_;
    if (!ranges_.empty() && ranges_.back().end() == end_) {
      offset = ranges_.back().offset;
      ranges_.pop_back();
    }
    end_ = offset + bytes;
    return offset;
  }
  void give(int64_t offset, int64_t bytes) {
    if (bytes == 0) return;
    auto next = std::lower_bound(ranges_.begin(), ranges_.end(), offset,
                                 [](const Range& r, int64_t at) { return r.offset < at; });
    const bool joins_next = next != ranges_.end() && offset + bytes == next->offset;
    const bool joins_before = next != ranges_.begin() && std::prev(next)->end() == offset;
    if (joins_before) {
      std::prev(next)->bytes += bytes + (joins_next ? next->bytes : 0);
      if (joins_next) ranges_.erase(next);
    } else if (joins_next) {
      *next = {offset, bytes + next->bytes};
    } else {
      ranges_.insert(next, {offset, bytes});
    }
  }
  [[nodiscard]] int64_t end() const { return end_; }

private:
  struct Range {
    int64_t offset, bytes;
    [[nodiscard]] int64_t end() const { return offset + bytes; }
  };
  std::vector<Range> ranges_;
  int64_t end_ = 0;
};

struct PlacedByTime {
  int64_t bytes;     // of the arena
  int64_t most_live; // bytes at one step
};
PlacedByTime place_by_time(std::vector<Slot>& slots) {
  std::vector<uint32_t> starts(slots.size()), ends;
  std::iota(starts.begin(), starts.end(), 0u);
  ends = starts;
  std::sort(starts.begin(), starts.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(slots[a].first, -slots[a].bytes, a) < std::tuple(slots[b].first, -slots[b].bytes, b);
  });
  std::sort(ends.begin(), ends.end(),
            [&](uint32_t a, uint32_t b) { return std::pair(slots[a].last, a) < std::pair(slots[b].last, b); });
  FreeList free;
  size_t ended = 0;
  int64_t live = 0, most = 0;
  for (uint32_t i : starts) {
    for (; ended < ends.size() && slots[ends[ended]].last < slots[i].first; ++ended) {
      free.give(slots[ends[ended]].offset, slots[ends[ended]].bytes);
      live -= slots[ends[ended]].bytes;
    }
    slots[i].offset = slots[i].bytes == 0 ? 0 : free.take(slots[i].bytes);
    most = std::max(most, live += slots[i].bytes);
  }
  return {free.end(), most};
}

} // namespace

Result<MemoryPlan> plan_memory(std::span<const PlannedBuffer> buffers, std::span<const Lent> lent) {
  std::vector<int> slot_of(buffers.size(), -1);
  std::vector<Slot> slots;
  // A buffer follows the chain of those whose memory it takes over; only the first taker of each is granted it.
  std::vector<uint32_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return std::pair(buffers[a].first, a) < std::pair(buffers[b].first, b); });
  slots.reserve(buffers.size());
  std::vector<bool> taken(buffers.size(), false), takes(buffers.size(), false);
  // Within one step a taker may be numbered before what it takes over: sources of the same step go first.
  std::vector<size_t> chain;
  auto assign = [&](size_t start) {
    chain.clear();
    for (size_t i = start; slot_of[i] < 0;) {
      chain.push_back(i);
      int from = buffers[i].in_place_of;
      bool usable = from >= 0 && static_cast<size_t>(from) < buffers.size() && chain.size() <= buffers.size() &&
                    buffers[static_cast<size_t>(from)].last == buffers[i].first &&
                    buffers[static_cast<size_t>(from)].first <= buffers[i].first;
      if (!usable) break;
      i = static_cast<size_t>(from);
    }
    for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
      const auto& b = buffers[*it];
      if (slot_of[*it] >= 0) continue; // a cycle of takers: broken where it was entered
      auto from = static_cast<size_t>(b.in_place_of);
      bool usable = b.in_place_of >= 0 && from < buffers.size() && slot_of[from] >= 0 && !taken[from] &&
                    buffers[from].last == b.first && buffers[from].first <= b.first &&
                    slots[static_cast<size_t>(slot_of[from])].last == b.first;
      // One take-over per step: what takes over memory that was itself taken over in this very step would meet the
      // first owner.
      usable = usable && (buffers[from].first < b.first || !takes[from]);
      if (usable) {
        taken[from] = true;
        takes[*it] = true;
        slot_of[*it] = slot_of[from];
        auto& s = slots[static_cast<size_t>(slot_of[from])];
        s.bytes = std::max(s.bytes, aligned(b.bytes));
        s.last = std::max(s.last, b.last);
      } else {
        slot_of[*it] = static_cast<int>(slots.size());
        slots.push_back({aligned(b.bytes), b.first, b.last});
      }
    }
  };
  int64_t sum = 0;
  for (size_t i : order) {
    if (buffers[i].bytes > kMaxArena - sum)
      return Diagnostic(ErrorCode::SizeOverflow, "the intermediate results of this shape exceed the address space");
    sum += aligned(buffers[i].bytes);
    assign(i);
  }
  place_in_lent(slots, lent);
  std::vector<Slot> own; // of the arena
  std::vector<size_t> index;
  for (size_t s = 0; s < slots.size(); ++s)
    if (slots[s].lent < 0) {
      own.push_back(slots[s]);
      index.push_back(s);
    }
  MemoryPlan plan;
  const auto [bytes_by_time, most_live] = place_by_time(own);
  plan.lower_bound = most_live;
  plan.bytes = bytes_by_time;
  if (own.size() <= kGreedyLimit && plan.bytes > plan.lower_bound) {
    auto other = own;
    if (int64_t bytes = place_by_size(other); bytes < plan.bytes) {
      plan.bytes = bytes;
      own = std::move(other);
    }
  }
  for (size_t s = 0; s < own.size(); ++s) slots[index[s]].offset = own[s].offset;
  plan.offsets.reserve(buffers.size());
  plan.lent.reserve(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Slot& slot = slots[static_cast<size_t>(slot_of[i])];
    plan.offsets.push_back(slot.offset);
    plan.lent.push_back(slot.lent);
  }
  return plan;
}

std::vector<LiveBytes> symbolic_live_bytes(const Executable& executable) {
  // Memory that is taken over counts once, for the whole chain of takers.
  auto count = executable.buffers.size();
  std::vector<int> last(count);
  for (size_t i = 0; i < count; ++i) last[i] = executable.buffers[i].last_step;
  auto is_taker = [&](const BufferInfo& b) { return b.in_place_of >= 0 && static_cast<size_t>(b.in_place_of) < count; };
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    return executable.buffers[x].first_step > executable.buffers[y].first_step;
  });
  for (size_t i : order)
    if (const auto& b = executable.buffers[i]; is_taker(b) && b.kind == BufferInfo::Kind::Temporary)
      last[static_cast<size_t>(b.in_place_of)] = std::max(last[static_cast<size_t>(b.in_place_of)], last[i]);
  auto steps = static_cast<int>(executable.steps.size());
  std::vector<std::vector<std::pair<int, SymExpr>>> change(executable.steps.size() +
                                                           1); // +bytes at the first step, -bytes after the last
  for (size_t i = 0; i < count; ++i) {
    const auto& b = executable.buffers[i];
    if (b.kind != BufferInfo::Kind::Temporary || b.last_step < b.first_step || is_taker(b)) continue;
    int64_t bits = info(b.dtype).bits;
    SymExpr bytes = bits % 8 == 0 ? product(b.shape) * SymExpr(bits / 8) : ceildiv(product(b.shape) * SymExpr(bits), 8);
    change[static_cast<size_t>(std::clamp(b.first_step, 0, steps))].emplace_back(1, bytes);
    change[static_cast<size_t>(std::clamp(last[i] + 1, 0, steps))].emplace_back(-1, bytes);
  }
  std::vector<LiveBytes> live;
  std::set<SymExpr> seen;
  SymExpr now = 0;
  for (size_t s = 0; s < executable.steps.size(); ++s) {
    for (auto& [sign, bytes] : change[s]) now = sign > 0 ? now + bytes : now - bytes;
    if (!now.is_const(0) && seen.insert(now).second) live.push_back({static_cast<int>(s), now});
  }
  // Candidates that are below another one for certain are left out.
  constexpr size_t kCompared = 48;
  std::vector<LiveBytes> kept;
  for (const auto& candidate : live) {
    auto below = [&](const SymExpr& a, const SymExpr& b) {
      return executable.env && executable.env->prove(sym_le(a, b)).value_or(false);
    };
    bool dominated = false;
    for (const auto& k : kept) dominated = dominated || below(candidate.bytes, k.bytes);
    if (dominated) continue;
    std::erase_if(kept, [&](const LiveBytes& k) { return below(k.bytes, candidate.bytes); });
    if (kept.size() < kCompared) kept.push_back(candidate);
  }
  return kept;
}

} // namespace tessera
