// Which accesses of memory by the threads of a block are not ordered by a barrier.
//
// Two accesses of a byte race when different threads make them, at least one writes, and there is no barrier between
// them: none of the block, and, within a warp, none of the warp. What orders is counted, not recorded: a barrier of the
// block moves all its threads to the next epoch, one of a warp its 32 lanes to the warp's next epoch. An access of an
// earlier epoch is ordered before everything now.
//
//   thread 3 writes at (epoch 7, warp epoch 2)
//   thread 9, same warp, reads at (7, 2): a race        at (7, 3): ordered       at (8, 2): ordered
//   thread 40, another warp, reads at (7, 5): a race                             at (8, 0): ordered
//
// A byte remembers its last writer and, of its readers since the epoch began, just enough to know whether a write that
// comes now has another thread's read before it: the readers of one warp, whether there were several, and whether
// there were readers in several warps (then every writer races with one of them).
#pragma once
#include <cstdint>

namespace tessera::emu {

enum class Access : uint8_t { Read, Write, Atomic };

// Where a thread stands when it makes an access.
struct Standing {
  int32_t thread = 0;
  // Of the block and of the thread's warp; they only grow. In exchange_epoch what lanes of a warp read is over: a
  // shuffle may start one (global memory: a value that was exchanged had been read), or it is the same as warp_epoch
  // (shared).
  uint32_t epoch = 0, warp_epoch = 0, exchange_epoch = 0;
};

// Of a byte, or of several that are always accessed together. Zeros are the history of what nobody has touched;
// epochs start at 1.
struct History {
  uint32_t write_epoch, write_warp_epoch, read_epoch, read_warp_epoch;
  uint16_t writer, reader;
  bool atomic, several_readers, several_warps;
};
struct Race {
  int32_t other = -1; // the thread of the earlier access; -1: no race
  Access earlier = Access::Read;
};

// Records an access and says with which earlier one it races. `writes_may_meet`: two writes are no race (of global
// memory, where a tile kernel may store twice to a place).
inline Race touch(History& b, const Standing& at, Access access, bool writes_may_meet) {
  auto unordered = [&](uint16_t other, uint32_t epoch, uint32_t warp_epoch) {
    return epoch == at.epoch && other != at.thread && (other / 32 != at.thread / 32 || warp_epoch == at.warp_epoch);
  };
  Race race;
  bool both_atomic = access == Access::Atomic && b.atomic;
  bool writes = access != Access::Read;
  // Of plain and atomic writes of one place one may be lost, wherever it is.
  bool meet = writes_may_meet && access == Access::Write && !b.atomic;
  if (!both_atomic && !meet && unordered(b.writer, b.write_epoch, b.write_warp_epoch))
    race = {b.writer, b.atomic ? Access::Atomic : Access::Write};
  if (writes) {
    if (b.read_epoch == at.epoch &&
        (b.several_warps || b.reader / 32 != at.thread / 32 ||
         (b.read_warp_epoch == at.exchange_epoch && (b.several_readers || b.reader != at.thread))))
      race = {b.reader, Access::Read};
    b.writer = static_cast<uint16_t>(at.thread);
    b.write_epoch = at.epoch;
    b.write_warp_epoch = at.warp_epoch;
    b.atomic = access == Access::Atomic;
    return race;
  }
  bool same_warp = b.reader / 32 == at.thread / 32;
  if (b.read_epoch != at.epoch) {
    b.several_readers = b.several_warps = false;
  } else if (!same_warp) {
    b.several_warps = true;
  } else if (b.read_warp_epoch != at.exchange_epoch) {
    b.several_readers = false;
  } else if (b.reader != at.thread) {
    b.several_readers = true;
  }
  b.reader = static_cast<uint16_t>(at.thread);
  b.read_epoch = at.epoch;
  b.read_warp_epoch = at.exchange_epoch;
  return race;
}

} // namespace tessera::emu
