// Tuning of a compiled model: each distinct kernel is measured with other schedules at the sizes of a call, and what is
// found goes to the records, where compiles look (CompileOptions::tuned).
#pragma once
#include "fusion/plan.h"
#include "measure/tune/measure.h"
#include "measure/tune/records.h"

namespace tessera {

using MakeMeasurer = std::function<Result<std::unique_ptr<Measurer>>(const MeasuredNest&)>;

struct TuneOptions {
  double budget_seconds = 60; // no kernel is begun, and no candidate measured, after that
  size_t candidates = 24;     // of a kernel, at most; the predicted time picks them
  size_t samples = 0;         // further ones, drawn at random
  uint64_t seed = 1;          // of these
  bool again = false;         // kernels that have a record, too
  std::function<bool()> stop; // asked between measurements: true ends it, as the end of the budget does
  // Records that cannot be written count in this process all the same, and the report says so; else that is an error.
  bool go_on_without_file = false;
  SearchOptions search;  // `expired` is set by the tuner
  MakeMeasurer measurer; // empty: make_measurer()
  std::function<void(const std::string&)> progress;
};

struct TunedKernel {
  enum class Outcome : uint8_t {
    Tuned,   // another schedule is better: recorded
    Default, // the default schedule is fastest: recorded, too
    Known,   // there was a record already
    Left,    // not measured, or not to the end: `note` says why
  };
  std::string name; // of the first kernel of this kind
  int uses = 1;     // kernels of the model that are the same
  Outcome outcome = Outcome::Left;
  std::string note;      // for Left
  std::string schedule;  // of the fastest
  std::string signature; // record_signature() of its nest
  TunedRecord record;
  struct Measured {
    Schedule schedule;
    double estimate_us = 0, us = 0; // of the first round; -1: not measured
    int registers = -1;             // of a thread; -1: not known
  };
  std::string nest;                  // text of its loop nest, over the graph's values
  std::vector<Measured> measured;    // the default schedule first
  std::vector<std::string> rejected; // candidates that failed, or whose results were wrong, and how
  int wrong = 0;                     // of those, with wrong results
};
struct TuneReport {
  std::vector<TunedKernel> kernels; // in the plan's order
  double seconds = 0;
  std::vector<Diagnostic> unwritten; // go_on_without_file: why records were not written
};

// Kernels that move most are tuned first; those of fixed sizes of 0 and scans are left. `device` is what the plan was
// made for. Records are written after each kernel, so that nothing is lost when it is interrupted. Errors: those of
// writing the records and of opening the device; what goes wrong with one kernel is its note.
[[nodiscard]] Result<TuneReport> tune_kernels(const Graph& graph, const FusionPlan& plan, const CompileOptions& compile,
                                              const Target& device, const CallSizes& sizes, TunedRecords& records,
                                              const TuneOptions& options = {});

} // namespace tessera
