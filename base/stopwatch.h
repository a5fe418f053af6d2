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

// Milliseconds of that clock since some moment, the same one throughout the process.
[[nodiscard]] inline double host_clock_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace tessera
