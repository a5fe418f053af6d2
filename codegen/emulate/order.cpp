#include "codegen/emulate/order.h"
#include <algorithm>

namespace tessera::emu {

void Clock::advance(int agent, uint32_t time) {
  auto i = static_cast<size_t>(agent);
  if (i >= times_.size()) times_.resize(i + 1);
  times_[i] = std::max(times_[i], time);
}
void Clock::merge(const Clock& other) {
  if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
  for (size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
}
void Clock::intersect(const Clock& other) {
  if (other.times_.size() < times_.size()) times_.resize(other.times_.size());
  for (size_t i = 0; i < times_.size(); ++i) times_[i] = std::min(times_[i], other.times_[i]);
}
void Known::merge(const Known& other) {
  events.merge(other.events);
  fenced.merge(other.fenced);
}
void Known::intersect(const Known& other) {
  events.intersect(other.events);
  fenced.intersect(other.fenced);
}
void Known::clear() {
  events.clear();
  fenced.clear();
}

Order::Order(int blocks, int threads, int64_t shared_bytes, bool detect)
    : blocks_(blocks), threads_(threads), detect_(detect), known_(static_cast<size_t>(blocks * threads)),
      units_(detect ? static_cast<size_t>((shared_bytes + kUnit - 1) / kUnit) : 0) {}

void Order::begin() {
  for (auto& u : units_) u = {};
  names_.clear();
  for (int i = 0; i < blocks_ * threads_; ++i) {
    names_.push_back("thread " + std::to_string(i % threads_));
    if (blocks_ > 1) names_.back() += " of block " + std::to_string(i / threads_) + " of the cluster";
    of(i).clear();
    of(i).events.advance(i, 1);
  }
}

int Order::add_agent(std::string name) {
  names_.push_back(std::move(name));
  return static_cast<int>(names_.size()) - 1;
}

void Order::release(int thread, Known& to) {
  auto& known = of(thread);
  to.merge(known);
  known.events.advance(thread, known.events[thread] + 1);
}

void Order::barrier(int first, int count) {
  Known all;
  for (int i = first; i < first + count; ++i) release(i, all);
  for (int i = first; i < first + count; ++i) acquire(i, all);
}

void Order::fence(int thread) {
  auto& known = of(thread);
  known.fenced = known.events;
  known.events.advance(thread, known.events[thread] + 1); // later writes are not fenced
}

std::optional<Conflict> Order::touch(History& h, const Stamp& stamp, const Known& known, Access access, Proxy proxy) {
  auto happened = [&](const Stamp& s) { return s.agent < 0 || known.events[s.agent] >= s.time; };
  if (!happened(h.writer)) return Conflict{h.writer, Access::Write};
  if (proxy == Proxy::Async && h.writer_proxy == Proxy::Generic && h.writer.agent >= 0 &&
      known.fenced[h.writer.agent] < h.writer.time)
    return Conflict{h.writer, Access::Write, true};
  if (access != Access::Read) {
    for (const auto& r : h.readers)
      if (!happened(r)) return Conflict{r, Access::Read};
    h.writer = stamp;
    h.writer_proxy = proxy;
    h.readers.clear();
    return {};
  }
  std::erase_if(h.readers, [&](const Stamp& r) { return r.agent == stamp.agent || happened(r); });
  h.readers.push_back(stamp);
  return {};
}

template <class F>
std::optional<Conflict> Order::each(int64_t at, int64_t bytes, F f) {
  std::optional<Conflict> found;
  for (const int64_t end = at + bytes; at < end && !found;) {
    auto& unit = units_[static_cast<size_t>(at / kUnit)];
    const int64_t stop = std::min(end, (at / kUnit + 1) * kUnit);
    const bool whole = stop - at == kUnit;
    if (!whole && !unit.bytes) {
      unit.bytes = std::make_unique<std::array<History, kUnit>>();
      unit.bytes->fill(unit.all);
    }
    if (!unit.bytes) {
      found = f(unit.all);
    } else {
      for (int64_t i = at; i < stop && !found; ++i) found = f((*unit.bytes)[static_cast<size_t>(i % kUnit)]);
      if (whole && !found && unit.bytes->front().readers.empty()) { // a write of them all
        unit.all = unit.bytes->front();
        unit.bytes.reset();
      }
    }
    at = stop;
  }
  return found;
}

std::optional<Conflict> Order::touch(int64_t at, int64_t bytes, const Stamp& stamp, const Known& known, Access access,
                                     Proxy proxy) {
  if (!detect_) return {};
  return each(at, bytes, [&](History& h) { return touch(h, stamp, known, access, proxy); });
}

void Order::set_writer(int64_t at, int64_t bytes, const Stamp& stamp) {
  if (!detect_) return;
  (void)each(at, bytes, [&](History& h) {
    h.writer = stamp;
    h.readers.clear();
    return std::optional<Conflict>();
  });
}

} // namespace tessera::emu
