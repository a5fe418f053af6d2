// Concurrent callers of one model, as a server has them: requests per second and latencies.
#pragma once
#include "command.h"

namespace tessera::command {

struct CallersOptions {
  int callers = 0;            // --concurrency; 0: not given
  std::optional<double> rate; // requests per second of an open loop; nothing: each caller calls as fast as it can
  std::string arrivals = "constant";
  [[nodiscard]] bool given() const { return callers > 0 || rate; }
};

// Closed loop: each caller, a thread with a context of its own, begins a call when its last one has ended. Open loop:
// requests are due at the rate, whatever calls take, and wait where no caller is free; their latency counts from the
// moment when they were due. Errors: those of opening and calling.
[[nodiscard]] Result<Json> bench_callers(const ModelOptions& model, const CallersOptions& options,
                                         const std::vector<std::string>& inputs, uint64_t seed, double seconds,
                                         int warmup);
[[nodiscard]] std::string callers_text(const Json& report);

} // namespace tessera::command
