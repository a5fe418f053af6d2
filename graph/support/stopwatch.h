// Time since a moment, on a clock that never goes back.
#pragma once
#include <chrono>

namespace tessera {

class Stopwatch {
public:
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  [[nodiscard]] double ms() const { return seconds() * 1e3; }
  [[nodiscard]] double us() const { return seconds() * 1e6; }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

} // namespace tessera
