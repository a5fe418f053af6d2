// Race detection within a block.
//
// Two accesses of a byte race if different threads make them, at least one writes, and no barrier lies between them:
// none of the block, and, if the threads share a warp, none of the warp. Barriers are counted as epochs: a block
// barrier starts the next epoch of all threads of the block, a warp barrier the next warp epoch of its 32 lanes. An
// access of an earlier epoch is ordered before every access of the current one. A barrier of some threads of the block
// starts the next epoch for them: races with the others, which keep their epoch, are not found.
//
//   thread 3 writes at (epoch 7, warp epoch 2)
//   thread 9, same warp, reads at (7, 2): a race        at (7, 3): ordered       at (8, 2): ordered
//   thread 40, another warp, reads at (7, 5): a race                             at (8, 0): ordered
//
// The history of a byte has its last writer and, of the readers in the current epoch, what decides whether a write
// races with a read of another thread: the last reader, whether its warp has several readers, and whether several warps
// have readers (then every writer races with one of them).
#pragma once
#include <cstdint>

namespace tessera::emu {

enum class Access : uint8_t { Read, Write, Atomic };

// Thread and epochs of an access.
struct AccessPoint {
  int32_t thread = 0;
  // Epochs of the block and of the thread's warp; they only grow. Reads of an earlier exchange_epoch are ordered before
  // writes of the warp. For global memory a shuffle starts a new one (an exchanged value has been read before); for
  // shared memory it equals warp_epoch.
  uint32_t epoch = 0, warp_epoch = 0, exchange_epoch = 0;
};

// History of a byte, or of several bytes that are always accessed together. All zeros: not accessed yet; epochs start
// at 1.
struct History {
  uint32_t write_epoch, write_warp_epoch, read_epoch, read_warp_epoch;
  uint16_t writer, reader;
  bool atomic, several_readers, several_warps;
};
struct Race {
  int32_t other = -1; // the thread of the earlier access; -1: no race
  Access earlier = Access::Read;
};

// Records an access and returns the earlier one with which it races. `allow_write_write`: two plain writes are not a
// race (global memory, where a tile kernel may store an element twice).
inline Race touch(History& b, const AccessPoint& at, Access access, bool allow_write_write) {
  auto unordered = [&](uint16_t other, uint32_t epoch, uint32_t warp_epoch) {
    return epoch == at.epoch && other != at.thread && (other / 32 != at.thread / 32 || warp_epoch == at.warp_epoch);
  };
  Race race;
  bool both_atomic = access == Access::Atomic && b.atomic;
  bool writes = access != Access::Read;
  // A plain write may overwrite an atomic one, so that combination always races.
  bool allowed = allow_write_write && access == Access::Write && !b.atomic;
  if (!both_atomic && !allowed && unordered(b.writer, b.write_epoch, b.write_warp_epoch))
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
