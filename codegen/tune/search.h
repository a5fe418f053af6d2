// Which of several candidates is fastest: measured in two rounds, the winners checked before they count.
//
//   first   each candidate a few times; the median counts
//   check   the best few must yield the first candidate's results; one that does not is out, and the next one comes up
//   final   those and the first candidate (the rules' choice), in turn, often enough to tell a few percent
//
// A winner is better than the first candidate by `gain` and by more than a clock's noise, else the first one stays.
#pragma once
#include "graph/support/result.h"
#include <functional>
#include <string>
#include <vector>

namespace tessera {

// Runs candidates; index 0 is the rules' choice. Errors count against the candidate, except for candidate 0's.
class Measurer {
public:
  virtual ~Measurer() = default;
  // What of time_us() need not keep the device: compiling the candidate. Else its first run does that.
  [[nodiscard]] virtual Status prepare(size_t) { return {}; }
  [[nodiscard]] virtual int registers(size_t) { return -1; } // of a thread, as the assembler says; -1: not known
  [[nodiscard]] virtual Result<double> time_us(size_t candidate) = 0; // one run, the caches flushed before it
  // Whether the candidate yields what candidate 0 does; else what differs.
  [[nodiscard]] virtual Result<std::string> difference(size_t candidate) = 0; // empty: none
};

struct SearchOptions {
  int first_runs = 5, final_runs = 21, warmup = 1;
  size_t finalists = 4;
  double gain = 0.03, noise_us = 0.2;
  std::function<bool()> expired; // asked between runs; the search ends early, with what is certain by then
};
struct SearchResult {
  size_t best = 0;
  double default_us = 0, best_us = 0; // medians of the final round
  int measured = 0;                   // candidates
  bool complete = true;               // false: `expired` ended it, and candidate 0 stays
  struct Rejected {
    size_t candidate;
    std::string why;
    bool wrong; // its results differ
  };
  std::vector<Rejected> rejected;
  std::vector<double> first_us; // of each candidate, -1 where it was not measured
};
// Error: that of candidate 0.
[[nodiscard]] Result<SearchResult> search(size_t candidates, Measurer& measurer, const SearchOptions& options = {});

} // namespace tessera
