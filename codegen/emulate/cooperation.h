// Cooperative blocks: arrival counters, partial-result packets, and a race detector for accesses of global memory by
// different blocks.
//
// The race detector uses vector clocks. Each block has a clock per block: the interval of that block whose accesses
// happened before. An arrival merges the block's clocks into the counter and starts a new interval of the block; the
// last block to arrive, and all that wait, merge the counter's clocks into their own. A byte records the interval and
// block of its last write and last read: the next access must be ordered after that interval.
#pragma once
#include "base/result.h"
#include "codegen/emulate/accesses.h"
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace tessera::emu {

class Cooperation {
public:
  // A grid of `blocks` blocks with `written_bytes` bytes of written memory. `waits`: blocks wait for others, so all run
  // at the same time.
  Cooperation(int64_t blocks, int64_t written_bytes, bool detect_races, bool waits);
  [[nodiscard]] bool waits() const { return waits_; }

  // Adds to a counter and yields the sum; with `wait`, after all cooperative blocks have arrived. Errors: CodegenError
  // if all blocks wait or have ended, Cancelled if another block has failed.
  [[nodiscard]] Result<uint32_t> arrive(int64_t block, std::byte* counter, uint32_t amount, bool wait);
  // Packets of partial results. They do not order other memory. Errors as of arrive, and CodegenError if the previous
  // packet was not received.
  [[nodiscard]] Status send(std::byte* packet, const uint32_t* payload);
  [[nodiscard]] Status await(std::byte* packet); // waits for the packet and does not clear it
  [[nodiscard]] Status receive(std::byte* packet, uint32_t* payload);
  // Records an access of bytes [at, at + bytes) of the written memory. Returns a block with whose access it races, or
  // -1. Only the last reader of a byte is recorded.
  [[nodiscard]] int64_t touch(int64_t block, int64_t at, int bytes, Access access);
  // A block has ended; `ok`: without an error.
  void leave(bool ok);

private:
  using Clocks = std::vector<uint32_t>; // by block
  struct Counter {
    Clocks arrived; // merged clocks of the blocks that arrived
    int64_t waiting = 0;
  };
  struct Last {
    int32_t writer, reader; // block + 1; 0: none
    uint32_t written, read; // interval of that block
  };
  [[nodiscard]] Diagnostic deadlock_error() const;
  // Waits until the packet is complete and copies it to `words`.
  [[nodiscard]] Status wait_for_packet(std::unique_lock<std::mutex>& lock, std::byte* packet, uint32_t* words);
  static void merge(Clocks& to, const Clocks& from);
  [[nodiscard]] bool is_ordered(int64_t block, int32_t other, uint32_t interval) const;
  void wake_if_stuck();

  std::mutex mutex_;
  std::condition_variable changed_;
  const bool detect_, waits_;
  std::vector<Clocks> clocks_; // by block, the block's own interval included
  std::map<std::byte*, Counter> counters_;
  std::set<std::byte*> awaited_; // packets
  std::vector<Last> last_;       // by byte
  int64_t running_, waiting_ = 0;
  bool failed_ = false, stuck_ = false;
};

} // namespace tessera::emu
