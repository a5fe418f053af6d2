// Counters and mailboxes of cooperative programs.
//
// Arrival counter: a 32-bit word in global memory at which n programs arrive.
//
//   program 0 adds 2^31 - (n - 1), each other program adds 1
//
// After all n arrivals the low 31 bits are 0 again and the highest bit, the phase, has flipped. After fewer arrivals
// the low bits are not 0. So a counter that starts with low bits of 0 ends with low bits of 0 for every n, is never
// cleared, and serves one launch after another. The program that finds the low bits 0 arrived last; a program that
// waits polls the phase bit.
//
// Exchange of partial results needs no counter. Each of n programs has a mailbox of n slots, in memory that is 0
// outside of an exchange. A slot has one or more packets of 16 bytes: 12 bytes of payload and a flag word, 1 once the
// payload is there. A program writes its partial results to its slot in every program's mailbox, waits for each packet
// of its own mailbox, and clears it to 0. A packet has one writer and one reader and is written by a single 16-byte
// store, so it needs no memory ordering, and gives none to other memory.
#pragma once
#include "base/dtype.h"
#include <cstdint>
#include <span>

namespace tessera::tile {

inline constexpr uint32_t kArrivalPhase = uint32_t{1} << 31; // the bit that flips when all programs have arrived

// The number that program `rank` of `count` adds to the counter.
[[nodiscard]] inline uint32_t arrival_increment(int64_t rank, int64_t count) {
  return rank == 0 ? kArrivalPhase - static_cast<uint32_t>(count - 1) : 1;
}
// True before the first and after the last arrival of a phase.
[[nodiscard]] inline bool all_arrived(uint32_t counter) { return (counter & (kArrivalPhase - 1)) == 0; }

inline constexpr int kPacketWords = 4, kPayloadWords = 3; // 32-bit words of a packet, and of its payload

// 32-bit words that a value of this type takes in a payload.
[[nodiscard]] inline int words_of(DType dtype) { return info(dtype).bits > 32 ? 2 : 1; }
// 32-bit words of the packets that carry one value of each of these types: the size of a mailbox slot.
[[nodiscard]] inline int packet_words(std::span<const DType> dtypes) {
  int words = 0;
  for (DType d : dtypes) words += words_of(d);
  return (words + kPayloadWords - 1) / kPayloadWords * kPacketWords;
}

} // namespace tessera::tile
