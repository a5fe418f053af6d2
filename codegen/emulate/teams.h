// Blocks that meet: the counters at which they arrive, and which accesses of global memory by different blocks are
// ordered by that.
//
// Each block has a clock for every block: how far it has seen the other one's work. An arrival leaves what the block
// has seen at the counter and begins the next interval of its own; the last one of a team, and all that wait, take over
// what was left there. A byte remembers in which interval of which block it was last written and last read: whoever
// touches it next must have seen that interval.
#pragma once
#include "codegen/emulate/accesses.h"
#include "graph/support/result.h"
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace tessera::emu {

class Teams {
public:
  // Of a grid of `blocks` blocks that write to `written_bytes` bytes. `waits`: some wait for others, all run at once.
  Teams(int64_t blocks, int64_t written_bytes, bool detect_races, bool waits);
  [[nodiscard]] bool waits() const { return waits_; }

  // Adds to a counter and yields the sum; with `wait` when all of its team have come. Errors: CodegenError where all
  // blocks wait or have ended, Cancelled where another block has failed.
  [[nodiscard]] Result<uint32_t> arrive(int64_t block, std::byte* counter, uint32_t amount, bool wait);
  // A message, and waiting for one: it says nothing of other memory. Errors as of arrive, and CodegenError where the
  // one before has not been read.
  [[nodiscard]] Status send(std::byte* place, const uint32_t* numbers);
  [[nodiscard]] Status listen(std::byte* place); // waits for it, and leaves it there
  [[nodiscard]] Status receive(std::byte* place, uint32_t* numbers);
  // An access of bytes [at, at + bytes) of the written memory: the block with whose access it is not ordered, or -1.
  // Of the readers of a byte the last one is known.
  [[nodiscard]] int64_t touch(int64_t block, int64_t at, int bytes, Access access);
  // A block has ended, well or not.
  void leave(bool well);

private:
  using Clocks = std::vector<uint32_t>; // by block
  struct Counter {
    Clocks left;
    int64_t waiting = 0;
  };
  struct Last {
    int32_t writer, reader; // block + 1; 0: nobody
    uint32_t written, read; // in which interval of its own
  };
  [[nodiscard]] Diagnostic nobody_comes() const;
  // Until there is a message, which is copied.
  [[nodiscard]] Status await(std::unique_lock<std::mutex>& lock, std::byte* place, uint32_t* message);
  static void take_over(Clocks& to, const Clocks& from);
  [[nodiscard]] bool seen(int64_t block, int32_t other, uint32_t interval) const;
  void wake_if_stuck();

  std::mutex mutex_;
  std::condition_variable changed_;
  const bool detect_, waits_;
  std::vector<Clocks> clocks_; // by block; a block's own interval among them
  std::map<std::byte*, Counter> counters_;
  std::set<std::byte*> awaited_; // messages
  std::vector<Last> last_;       // by byte
  int64_t running_, waiting_ = 0;
  bool failed_ = false, stuck_ = false;
};

} // namespace tessera::emu
