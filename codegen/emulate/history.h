// Access history of every byte of a memory.
//
// Four aligned bytes share one history until a thread accesses a part of them; they share one again in a later epoch of
// the block, before which all earlier accesses are ordered.
#pragma once
#include "codegen/emulate/accesses.h"
#include "codegen/emulate/pages.h"
#include <algorithm>

namespace tessera::emu {

class Histories {
public:
  Histories() = default;
  [[nodiscard]] static Result<Histories> make(int64_t bytes) {
    Histories h;
    auto words = static_cast<size_t>(bytes + 3) / 4;
    TESSERA_ASSIGN(h.words_, Pages::reserve(words * sizeof(Word)));
    TESSERA_ASSIGN(h.bytes_, Pages::reserve(words * 4 * sizeof(History)));
    return h;
  }

  // touch() of bytes [at, at + bytes); returns the first race.
  Race touch(int64_t at, int bytes, const AccessPoint& point, Access access, bool allow_write_write) {
    auto* words = reinterpret_cast<Word*>(words_.data());
    Race found;
    for (int64_t end = at + bytes; at < end && found.other < 0;) {
      auto& w = words[at / 4];
      auto* of_bytes = reinterpret_cast<History*>(bytes_.data()) + at / 4 * 4;
      int64_t stop = std::min(end, (at / 4 + 1) * 4);
      bool whole = stop - at == 4;
      bool split = w.split_epoch == point.epoch;
      if (whole && !split) {
        found = emu::touch(w.all, point, access, allow_write_write);
      } else {
        if (!split) {
          for (int i = 0; i < 4; ++i) of_bytes[i] = w.all;
          w.split_epoch = point.epoch;
        }
        for (; at < stop && found.other < 0; ++at)
          found = emu::touch(of_bytes[at % 4], point, access, allow_write_write);
      }
      at = stop;
    }
    return found;
  }

private:
  struct Word {
    History all;          // valid unless split
    uint32_t split_epoch; // the epoch in which each byte has a separate history
  };
  Pages words_, bytes_;
};

} // namespace tessera::emu
