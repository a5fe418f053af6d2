// Programs that meet. The n programs of a team count themselves at one counter, a word of 32 bits in global memory:
//
//   member 0 adds 2^31 - (n - 1), the others add 1
//
// After all n of them the low 31 bits are 0 again and the highest one has changed; after some of them the low bits are
// not 0. So a counter that starts with low bits of 0 ends so, whatever the team's size was, and is never cleared: one
// launch after the other may use it. Who finds the low bits 0 was the last to arrive; who waits looks at the high bit.
#pragma once
#include <cstdint>

namespace tessera::tile {

inline constexpr uint32_t kTeamRound = uint32_t{1} << 31; // the bit that changes when all have arrived

// What member `member` of `count` adds.
[[nodiscard]] inline uint32_t arrival(int64_t member, int64_t count) {
  return member == 0 ? kTeamRound - static_cast<uint32_t>(count - 1) : 1;
}
// Of a counter's value: nobody is there, or everybody.
[[nodiscard]] inline bool is_at_rest(uint32_t counter) { return (counter & (kTeamRound - 1)) == 0; }

} // namespace tessera::tile
