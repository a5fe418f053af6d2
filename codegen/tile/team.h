// Programs that meet. The n programs of a team count themselves at one counter, a word of 32 bits in global memory:
//
//   member 0 adds 2^31 - (n - 1), the others add 1
//
// After all n of them the low 31 bits are 0 again and the highest one has changed; after some of them the low bits are
// not 0. So a counter that starts with low bits of 0 ends so, whatever the team's size was, and is never cleared: one
// launch after the other may use it. Who finds the low bits 0 was the last to arrive; who waits looks at the high bit.
//
// Programs that exchange numbers need no counter. Each of n members has n boxes, of whole messages of 16 bytes, in
// memory that is 0 when nothing is under way: 12 bytes of numbers and a word that is 1 once they are there. A member
// puts what it has into its place in every member's boxes, waits for each message in its own, and clears it. So a
// message has one reader, one writer, and arrives as a whole: nothing is ordered by it but itself. Memory that was 0 is
// so again.
#pragma once
#include "graph/support/dtype.h"
#include <cstdint>
#include <span>

namespace tessera::tile {

inline constexpr uint32_t kTeamRound = uint32_t{1} << 31; // the bit that changes when all have arrived

// What member `member` of `count` adds.
[[nodiscard]] inline uint32_t arrival(int64_t member, int64_t count) {
  return member == 0 ? kTeamRound - static_cast<uint32_t>(count - 1) : 1;
}
// Of a counter's value: nobody is there, or everybody.
[[nodiscard]] inline bool is_at_rest(uint32_t counter) { return (counter & (kTeamRound - 1)) == 0; }

inline constexpr int kMessageWords = 4, kMessageNumbers = 3; // of 32 bits: of a message, and of what it carries

// Words of 32 bits that a number takes in a message.
[[nodiscard]] inline int words_of(DType dtype) { return info(dtype).bits > 32 ? 2 : 1; }
// Words of the messages in which a member tells numbers of these types.
[[nodiscard]] inline int message_words(std::span<const DType> dtypes) {
  int words = 0;
  for (DType d : dtypes) words += words_of(d);
  return (words + kMessageNumbers - 1) / kMessageNumbers * kMessageWords;
}

} // namespace tessera::tile
