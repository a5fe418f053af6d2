#include "codegen/llvm/gpu_hazards.h"
#include <algorithm>

namespace tessera::gpu {

bool Hazards::conflict(const GlobalAccess& before, const GlobalAccess& after, bool next_round) const {
  using Kind = GlobalAccess::Kind;
  if (before.kind == Kind::Read && after.kind == Kind::Read) return false;
  if (before.kind == Kind::Write && after.kind == Kind::Write && before.pointer == after.pointer) {
    auto written = std::find_if(kernel_.params.begin(), kernel_.params.end(),
                                [&](const tile::Param& p) { return p.value == before.pointer; });
    if (written == kernel_.params.end() ? kernel_.config.contains("scratch_once") : written->once) return false;
  }
  if (before.kind == Kind::Atomic && after.kind == Kind::Atomic) return false;
  bool in_place = false;
  if (before.pointer != after.pointer) {
    // A written buffer may alias a read-only one, for elements that are not read any more. Conversely, an element that
    // was written is not read through another pointer.
    if (before.kind != Kind::Read) return false;
    const tile::Param *read = nullptr, *written = nullptr;
    for (const auto& p : kernel_.params) {
      if (p.value == before.pointer) read = &p;
      if (p.value == after.pointer) written = &p;
    }
    if (!read || !written || read->written || read->invariant) return false;
    if (info(read->type.dtype).bits != info(written->type.dtype).bits) return false;
    in_place = read->in_place;
  }
  if (!before.tile && !after.tile) return before.kind == Kind::Read || after.kind == Kind::Read;
  const bool same_elements = before.whole && after.whole && before.pointer == after.pointer;
  if (next_round && before.pointer == after.pointer && !same_elements) return true;
  bool own = (in_place || same_elements || before.offset == after.offset) && before.tile && after.tile &&
             before.layout == after.layout && before.layout.is_injective();
  return !own;
}

bool Hazards::conflicts(const GlobalAccess& access) const {
  return std::any_of(pending_.global.begin(), pending_.global.end(),
                     [&](const GlobalAccess& p) { return conflict(p, access, false); });
}

static void add(std::vector<GlobalAccess>& to, const GlobalAccess& a) {
  if (std::find(to.begin(), to.end(), a) == to.end()) to.push_back(a);
}
static void add(std::vector<SharedRange>& to, const SharedRange& r) {
  if (std::find(to.begin(), to.end(), r) == to.end()) to.push_back(r);
}

void Hazards::touch(GlobalAccess access) {
  for (auto& h : heads_)
    if (h.open) add(h.accesses.global, access);
  add(pending_.global, access);
}

void Hazards::touch_shared(SharedRange range) {
  shared_bytes_ = std::max(shared_bytes_, range.end);
  for (auto& h : heads_)
    if (h.open) add(h.accesses.shared, range);
  add(pending_.shared, range);
}

std::optional<int64_t> Hazards::find_shared(int64_t bytes) const {
  std::vector<SharedRange> taken = pending_.shared;
  std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  int64_t at = reserved_;
  for (const auto& r : taken) {
    if (r.begin >= at + bytes) break;
    at = std::max(at, (r.end + 15) / 16 * 16);
  }
  if (at + bytes > limit_) return std::nullopt;
  return at;
}

std::optional<int64_t> Hazards::reserve_shared(int64_t bytes) {
  // Ranges allocated earlier overlap this one: all of them must be behind a barrier, else it goes above them.
  int64_t at = reserved_;
  for (const auto& r : pending_.shared) at = std::max(at, (r.end + 15) / 16 * 16);
  if (at + bytes > limit_) return std::nullopt;
  reserved_ = (at + bytes + 15) / 16 * 16;
  shared_bytes_ = std::max(shared_bytes_, reserved_);
  return at;
}

std::optional<int64_t> Hazards::reserve_scratch(int64_t bytes) {
  limit_ = most_;
  auto at = reserve_shared(bytes);
  limit_ = std::min(most_, std::max(kSharedLimit, reserved_ + kExchangeBytes));
  return at;
}

bool Hazards::extend_for(int64_t bytes) {
  const int64_t needed = reserved_ + bytes;
  if (needed > most_) return false;
  limit_ = std::max(limit_, needed);
  return true;
}

void Hazards::barrier() {
  pending_ = {};
  for (auto& h : heads_)
    if (h.depth == depth_) h.open = false;
}

void Hazards::merge(const Pending& other) {
  for (const auto& a : other.global) add(pending_.global, a);
  for (const auto& r : other.shared) add(pending_.shared, r);
}

void Hazards::enter_loop() {
  ++depth_;
  heads_.push_back({depth_, true, {}});
}

bool Hazards::next_round_conflicts() const {
  const Pending& head = heads_.back().accesses;
  for (const auto& p : pending_.global)
    for (const auto& h : head.global)
      if (conflict(p, h, true)) return true;
  for (const auto& p : pending_.shared)
    for (const auto& h : head.shared)
      if (p.begin < h.end && h.begin < p.end) return true;
  return false;
}

void Hazards::leave_loop() {
  heads_.pop_back();
  --depth_;
}

} // namespace tessera::gpu
