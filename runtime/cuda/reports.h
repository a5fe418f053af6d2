// Reports of bad indices by the kernels of a variant: an IndexReport for each step whose kernel checks indices, so that
// it is known which one reports; number 0 is for all others, which never write. They lie in host memory that kernels
// write into: nothing is copied for what hardly ever happens. Complete when the stream has been waited for.
#pragma once
#include "runtime/cuda/driver.h"
#include "runtime/variant.h"

namespace tessera::cuda {

// A report whose words have all come, while kernels may run. Until all words are of one bad index, their keys differ.
[[nodiscard]] bool is_complete(const IndexReport& report);

class Reports {
public:
  explicit Reports(const Variant& variant);
  [[nodiscard]] size_t count() const { return steps_.size(); } // report r belongs to steps_[r]
  // Sets where the reports are for the host and for the GPU, and with that the argument of every launch.
  void place(IndexReport* memory, CUdeviceptr seen_by_gpu);
  [[nodiscard]] IndexReport* memory() const { return memory_; } // null: not placed yet
  // The argument of a step's kernel: the address of its report.
  [[nodiscard]] CUdeviceptr argument(int step) const { return arguments_[static_cast<size_t>(step)]; }

  [[nodiscard]] bool any() const; // kernels may be writing
  // There are some, and all words of them have come: no kernel need have ended.
  [[nodiscard]] bool complete() const;
  void clear();
  // The first one by step, in a call of these sizes (CallState). There is one, and no kernel is running.
  [[nodiscard]] Diagnostic first(const Variant::CallState& call) const;
  // The same, in one of the calls that were noted: of unknown sizes if these differ.
  [[nodiscard]] Diagnostic first_noted() const;
  // A call whose reports are looked at later; `alone` if there is no earlier one.
  void note(const Variant::CallState& call, bool alone);

  // The kernel, of several for a step, that was launched last: it knows what its report means.
  std::vector<const KernelLaunch*> launched; // by step
  bool stale = true;                         // a run was given up: whatever it reported is of no interest

private:
  [[nodiscard]] Diagnostic first(const std::vector<int64_t>& values, const std::vector<bool>& bound) const;

  const Variant& variant_;
  IndexReport* memory_ = nullptr;
  std::vector<int> steps_;             // by report
  std::vector<size_t> reports_;        // by step
  std::vector<CUdeviceptr> arguments_; // by step
  std::vector<int64_t> values_;        // of the calls that were noted, as in their CallState
  std::vector<bool> bound_;
};

// Reports of calls on the device, which later calls look at.
class UnreadReports {
public:
  // Adds the reports of a call of these sizes. `captured`: the call is part of a graph, which may report at any time
  // from now on.
  void note(Reports& reports, const Variant::CallState& call, bool captured);
  void forget(Reports& reports);      // which go
  void arrived() { calls_.clear(); }  // no call is in flight
  [[nodiscard]] Reports* bad() const; // some with a bad index; null: none

private:
  std::vector<Reports*> calls_, graphs_; // each once
};

} // namespace tessera::cuda
