#include "codegen/emulate/teams.h"
#include "codegen/tile/team.h"
#include <algorithm>
#include <cstring>

namespace tessera::emu {

Teams::Teams(int64_t blocks, int64_t written_bytes, bool detect_races, bool waits)
    : detect_(detect_races), waits_(waits), running_(blocks) {
  auto n = static_cast<size_t>(std::max<int64_t>(blocks, 0));
  clocks_.assign(n, Clocks(n, 0));
  for (size_t b = 0; b < n; ++b) clocks_[b][b] = 1;
  if (detect_) last_.resize(static_cast<size_t>(written_bytes));
}

void Teams::take_over(Clocks& to, const Clocks& from) {
  to.resize(from.size());
  for (size_t b = 0; b < from.size(); ++b) to[b] = std::max(to[b], from[b]);
}

bool Teams::seen(int64_t block, int32_t other, uint32_t interval) const {
  return other == 0 || other - 1 == block ||
         clocks_[static_cast<size_t>(block)][static_cast<size_t>(other - 1)] >= interval;
}

int64_t Teams::touch(int64_t block, int64_t at, int bytes, Access access) {
  if (!detect_) return -1;
  std::lock_guard lock(mutex_);
  uint32_t now = clocks_[static_cast<size_t>(block)][static_cast<size_t>(block)];
  for (int64_t i = at; i < at + bytes; ++i) {
    Last& l = last_[static_cast<size_t>(i)];
    if (access == Access::Atomic) continue; // ordered among themselves, and nothing else is said of them
    if (!seen(block, l.writer, l.written)) return l.writer - 1;
    if (access == Access::Write) {
      if (!seen(block, l.reader, l.read)) return l.reader - 1;
      l.writer = static_cast<int32_t>(block) + 1;
      l.written = now;
    } else {
      l.reader = static_cast<int32_t>(block) + 1;
      l.read = now;
    }
  }
  return -1;
}

Result<uint32_t> Teams::arrive(int64_t block, std::byte* address, uint32_t amount, bool wait) {
  std::unique_lock lock(mutex_);
  Clocks& own = clocks_[static_cast<size_t>(block)];
  Counter& counter = counters_[address];
  uint32_t before = 0;
  std::memcpy(&before, address, sizeof before);
  uint32_t sum = before + amount;
  std::memcpy(address, &sum, sizeof sum);
  take_over(counter.left, own);
  ++own[static_cast<size_t>(block)];
  if (tile::is_at_rest(sum)) {
    take_over(own, counter.left);
    waiting_ -= std::exchange(counter.waiting, 0);
    changed_.notify_all();
    return sum;
  }
  if (!wait) return sum;
  ++counter.waiting;
  ++waiting_;
  wake_if_stuck();
  auto all_came = [&] {
    uint32_t now = 0;
    std::memcpy(&now, address, sizeof now);
    return ((now ^ before) & tile::kTeamRound) != 0;
  };
  changed_.wait(lock, [&] { return failed_ || stuck_ || all_came(); });
  if (!all_came()) return nobody_comes();
  take_over(own, counter.left);
  return sum;
}

Diagnostic Teams::nobody_comes() const {
  return stuck_ ? Diagnostic(ErrorCode::CodegenError, "its block waits for others of its team that never come")
                : Diagnostic(ErrorCode::Cancelled, "another block failed");
}

Status Teams::send(std::byte* place, const uint32_t* numbers) {
  std::lock_guard lock(mutex_);
  uint32_t message[tile::kMessageWords];
  std::memcpy(message, place, sizeof message);
  if (message[tile::kMessageNumbers] != 0)
    return Diagnostic(ErrorCode::CodegenError, "it leaves a message where one is that nobody has read");
  std::copy_n(numbers, tile::kMessageNumbers, message);
  message[tile::kMessageNumbers] = 1;
  std::memcpy(place, message, sizeof message);
  if (awaited_.erase(place) == 0) return {};
  --waiting_;
  changed_.notify_all();
  return {};
}

Status Teams::await(std::unique_lock<std::mutex>& lock, std::byte* place, uint32_t* message) {
  auto there = [&] {
    std::memcpy(message, place, sizeof(uint32_t) * tile::kMessageWords);
    return message[tile::kMessageNumbers] != 0;
  };
  if (there()) return {};
  awaited_.insert(place);
  ++waiting_;
  wake_if_stuck();
  changed_.wait(lock, [&] { return failed_ || stuck_ || there(); });
  if (!there()) return nobody_comes();
  return {};
}

Status Teams::listen(std::byte* place) {
  std::unique_lock lock(mutex_);
  uint32_t message[tile::kMessageWords];
  return await(lock, place, message);
}

Status Teams::receive(std::byte* place, uint32_t* numbers) {
  std::unique_lock lock(mutex_);
  uint32_t message[tile::kMessageWords];
  TESSERA_TRY(await(lock, place, message));
  std::copy_n(message, tile::kMessageNumbers, numbers);
  std::memset(place, 0, sizeof message);
  return {};
}

void Teams::leave(bool well) {
  std::lock_guard lock(mutex_);
  --running_;
  failed_ = failed_ || !well;
  wake_if_stuck();
  if (failed_) changed_.notify_all();
}

// Nobody is left who could come.
void Teams::wake_if_stuck() {
  if (waiting_ == 0 || waiting_ < running_) return;
  stuck_ = true;
  changed_.notify_all();
}

} // namespace tessera::emu
