#include "codegen/emulate/cooperation.h"
#include "codegen/tile/cooperation.h"
#include <algorithm>
#include <cstring>

namespace tessera::emu {

Cooperation::Cooperation(int64_t blocks, int64_t written_bytes, bool detect_races, bool waits)
    : detect_(detect_races), waits_(waits), running_(blocks) {
  auto n = static_cast<size_t>(std::max<int64_t>(blocks, 0));
  clocks_.assign(n, Clocks(n, 0));
  for (size_t b = 0; b < n; ++b) clocks_[b][b] = 1;
  if (detect_) last_.resize(static_cast<size_t>(written_bytes));
}

void Cooperation::merge(Clocks& to, const Clocks& from) {
  to.resize(from.size());
  for (size_t b = 0; b < from.size(); ++b) to[b] = std::max(to[b], from[b]);
}

bool Cooperation::is_ordered(int64_t block, int32_t other, uint32_t interval) const {
  return other == 0 || other - 1 == block ||
         clocks_[static_cast<size_t>(block)][static_cast<size_t>(other - 1)] >= interval;
}

int64_t Cooperation::touch(int64_t block, int64_t at, int bytes, Access access) {
  if (!detect_) return -1;
  std::lock_guard lock(mutex_);
  uint32_t now = clocks_[static_cast<size_t>(block)][static_cast<size_t>(block)];
  for (int64_t i = at; i < at + bytes; ++i) {
    Last& l = last_[static_cast<size_t>(i)];
    if (access == Access::Atomic)
      continue; // atomics are ordered with each other, and not checked against other accesses
    if (!is_ordered(block, l.writer, l.written)) return l.writer - 1;
    if (access == Access::Write) {
      if (!is_ordered(block, l.reader, l.read)) return l.reader - 1;
      l.writer = static_cast<int32_t>(block) + 1;
      l.written = now;
    } else {
      l.reader = static_cast<int32_t>(block) + 1;
      l.read = now;
    }
  }
  return -1;
}

Result<uint32_t> Cooperation::arrive(int64_t block, std::byte* address, uint32_t amount, bool wait) {
  std::unique_lock lock(mutex_);
  Clocks& own = clocks_[static_cast<size_t>(block)];
  Counter& counter = counters_[address];
  uint32_t before = 0;
  std::memcpy(&before, address, sizeof before);
  uint32_t sum = before + amount;
  std::memcpy(address, &sum, sizeof sum);
  merge(counter.arrived, own);
  ++own[static_cast<size_t>(block)];
  if (tile::all_arrived(sum)) {
    merge(own, counter.arrived);
    waiting_ -= std::exchange(counter.waiting, 0);
    changed_.notify_all();
    return sum;
  }
  if (!wait) return sum;
  ++counter.waiting;
  ++waiting_;
  wake_if_stuck();
  auto all_have_arrived = [&] {
    uint32_t now = 0;
    std::memcpy(&now, address, sizeof now);
    return ((now ^ before) & tile::kArrivalPhase) != 0;
  };
  changed_.wait(lock, [&] { return failed_ || stuck_ || all_have_arrived(); });
  if (!all_have_arrived()) return deadlock_error();
  merge(own, counter.arrived);
  return sum;
}

Diagnostic Cooperation::deadlock_error() const {
  return stuck_ ? Diagnostic(ErrorCode::CodegenError, "its block waits for cooperative blocks that never arrive")
                : Diagnostic(ErrorCode::Cancelled, "another block failed");
}

Status Cooperation::send(std::byte* packet, const uint32_t* payload) {
  std::lock_guard lock(mutex_);
  uint32_t words[tile::kPacketWords];
  std::memcpy(words, packet, sizeof words);
  if (words[tile::kPayloadWords] != 0)
    return Diagnostic(ErrorCode::CodegenError, "it sends a packet before the previous one was received");
  std::copy_n(payload, tile::kPayloadWords, words);
  words[tile::kPayloadWords] = 1;
  std::memcpy(packet, words, sizeof words);
  if (awaited_.erase(packet) == 0) return {};
  --waiting_;
  changed_.notify_all();
  return {};
}

Status Cooperation::wait_for_packet(std::unique_lock<std::mutex>& lock, std::byte* packet, uint32_t* words) {
  auto complete = [&] {
    std::memcpy(words, packet, sizeof(uint32_t) * tile::kPacketWords);
    return words[tile::kPayloadWords] != 0;
  };
  if (complete()) return {};
  awaited_.insert(packet);
  ++waiting_;
  wake_if_stuck();
  changed_.wait(lock, [&] { return failed_ || stuck_ || complete(); });
  if (!complete()) return deadlock_error();
  return {};
}

Status Cooperation::await(std::byte* packet) {
  std::unique_lock lock(mutex_);
  uint32_t words[tile::kPacketWords];
  return wait_for_packet(lock, packet, words);
}

Status Cooperation::receive(std::byte* packet, uint32_t* payload) {
  std::unique_lock lock(mutex_);
  uint32_t words[tile::kPacketWords];
  TESSERA_TRY(wait_for_packet(lock, packet, words));
  std::copy_n(words, tile::kPayloadWords, payload);
  std::memset(packet, 0, sizeof words);
  return {};
}

void Cooperation::leave(bool ok) {
  std::lock_guard lock(mutex_);
  --running_;
  failed_ = failed_ || !ok;
  wake_if_stuck();
  if (failed_) changed_.notify_all();
}

// Deadlock: all running blocks wait.
void Cooperation::wake_if_stuck() {
  if (waiting_ == 0 || waiting_ < running_) return;
  stuck_ = true;
  changed_.notify_all();
}

} // namespace tessera::emu
