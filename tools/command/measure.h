// Times of a model's steps: measured by calls of it, read from what `tessera bench` wrote, joined to its report.
#pragma once
#include "inputs.h"
#include "runtime/cuda/timing.h"

namespace tessera::command {

// The value below which a share of the sorted ones lies, between neighbours.
[[nodiscard]] double percentile(const std::vector<double>& sorted, double share);

// A call as it is timed: on the host with its clock; on a GPU between events, with inputs and outputs that lie there and
// a cache that was overwritten.
struct Timed {
  std::unique_ptr<cuda::Stopwatch> watch; // null on the host
  std::map<std::string, DeviceTensor> inputs;
  std::vector<DeviceTensor> outputs;

  // Makes a first call, which plans the shape and prepacks or uploads weights.
  [[nodiscard]] static Result<Timed> create(Session& session, const Tensors& tensors, bool gpu, RunStats& stats);
  // Milliseconds. With `stats`, a session that profiles measures each step, too, which slows a GPU's steps down that are
  // shorter than a launch.
  [[nodiscard]] Result<double> call(Session& session, const Tensors& tensors, RunStats* stats) const;
};

// Times of one model's steps and calls, in microseconds: what `bench --profile --json` and its trace hold, too.
struct StepTimes {
  struct Step {
    std::string id;
    int64_t bytes = 0;
    std::vector<double> us; // of each run
    [[nodiscard]] double median() const;
  };
  std::vector<Step> steps;       // in the order of execution
  std::optional<double> call_us; // of a call that measured no steps
  std::string target;            // empty: not known
  Sizes sizes;                   // empty: not known
  void add(const RunStats& call);

private:
  std::map<std::string, size_t> index_;
};

// Runs the model on random inputs at these sizes until steps were measured for `seconds`, and at least `least` times.
[[nodiscard]] Result<StepTimes> measure_steps(Session& session, const Sizes& sizes, uint64_t seed, double seconds,
                                              size_t least = 5);
// From a file that `bench --profile --json` or `bench --trace` wrote. Errors: FileError; BadInput where it is neither.
[[nodiscard]] Result<StepTimes> read_step_times(const std::string& path);
// Gives each step of the report that has a time its "measured_us", and the totals theirs. What does not fit is said in
// `notes`: steps that only one of them has, another device. Error BadInput: other sizes, or no step in common.
[[nodiscard]] Status add_measured(Json& report, const StepTimes& times, std::vector<std::string>& notes);

} // namespace tessera::command
