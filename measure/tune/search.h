// Finds the fastest of several candidates: two rounds of measurements, with a check of results between them.
//
//   first   `first_runs` runs of each candidate; their median ranks it
//   check   the best `finalists` must give candidate 0's results; the next one replaces one that does not
//   final   `final_runs` runs of these and of candidate 0 (the default schedule), alternating
//
// A candidate wins if it is faster than candidate 0 by the fraction `gain` and by more than `noise_us`.
#pragma once
#include "base/result.h"
#include <functional>
#include <string>
#include <vector>

namespace tessera {

// Runs candidates; index 0 is the default schedule. A candidate with an error is rejected; an error of candidate 0 ends
// the search.
class Measurer {
public:
  virtual ~Measurer() = default;
  // Compiles the candidate, which does not need the device. Without this call, time_us() compiles it.
  [[nodiscard]] virtual Status prepare(size_t) { return {}; }
  [[nodiscard]] virtual int registers(size_t) { return -1; } // registers per thread, from the assembler; -1: unknown
  [[nodiscard]] virtual Result<double> time_us(size_t candidate) = 0; // one run, the caches flushed before it
  // Compares the candidate's results with candidate 0's; describes the difference.
  [[nodiscard]] virtual Result<std::string> difference(size_t candidate) = 0; // empty: none
};

struct SearchOptions {
  int first_runs = 5, final_runs = 21, warmup = 1;
  size_t finalists = 4;
  double gain = 0.03, noise_us = 0.2;
  std::function<bool()> expired; // polled between runs; true ends the search early
};
struct SearchResult {
  size_t best = 0;
  double default_us = 0, best_us = 0; // medians of the final round
  int measured = 0;                   // number of candidates measured
  bool complete = true;               // false: `expired` ended the search, and candidate 0 is the result
  struct Rejected {
    size_t candidate;
    std::string why;
    bool wrong; // true: its results differ; false: it failed
  };
  std::vector<Rejected> rejected;
  std::vector<double> first_us; // first-round median of each candidate, in us; -1: not measured
};
// Error: that of candidate 0.
[[nodiscard]] Result<SearchResult> search(size_t candidates, Measurer& measurer, const SearchOptions& options = {});

} // namespace tessera
