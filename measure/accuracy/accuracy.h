// How far the values of a compiled model are from a reference, operator by operator.
//
// The error of a value is ||seen - expected|| / ||expected||. Against the exact reference (f64), an operator adds error
// of its own, and passes on the error of its operands, larger or smaller:
//
//   error   of the value against the reference's value
//   own     of the value against the operator's reference on the operands that the device computed
//
// A value whose operands agree with the reference while it does not, though the operator's own error is within the
// tolerance, is not judged: a subtraction cancels, a number to be rounded lies between two integers, a comparison is of
// nearly equal numbers. What the reference computes from there on, it computes from the device's value, so that the
// values behind it are judged again. The same goes for random numbers. The tolerance of a value is that of the
// coarsest type among all that it was computed from: ops::tolerance(), 2e-3 for f16; behind many operators it grows with
// the root of their number, as the sum of their roundings does.
#pragma once
#include "measure/accuracy/taps.h"

namespace tessera::accuracy {

struct ValueError {
  ValueId value;
  double error = 0, tolerance = 0;
  std::optional<double> own; // where all operands were tapped whole
  double max_abs = 0;
  int64_t compared = 0; // elements
  Dims at;              // of the first NaN or infinity that the reference has not, else of the largest difference
  double seen = 0, expected = 0;
  bool not_finite = false;   // seen is NaN or infinite, expected is another value
  std::string other_sizes;   // "f32[3], not f32[4]" where data decided other sizes: no elements are compared
  const char* unjudged = ""; // why a value beyond the tolerance does not depart; "": it is judged
  [[nodiscard]] bool departs() const { return *unjudged == 0 && !(error <= tolerance); }
};

struct AccuracyReport {
  std::vector<ValueError> values; // in the order of the graph's nodes
  std::vector<NotTapped> not_compared;
  std::optional<size_t> first; // index in `values` of the first one that departs
  int runs = 0, taps = 0, inner = 0;
  bool reproducible = true;
};

struct AccuracyOptions {
  std::optional<double> rtol; // the tolerance of every value
  TapOptions taps;
  std::function<void(double)> progress; // the share of the work that is done, from 0 to 1
};
// Against the exact reference. Errors: those of run_with_taps() and of the references.
[[nodiscard]] Result<AccuracyReport> compare_with_reference(const Compiled& compiled,
                                                            const std::map<std::string, Tensor>& inputs,
                                                            const SymValues& sizes, const AccuracyOptions& options);

// Values that something else has computed from the same inputs, by name; tensors may have other types.
class OtherValues {
public:
  virtual ~OtherValues() = default;
  // Makes ready for get() of these names. What was ready before may go.
  [[nodiscard]] virtual Status load(const std::vector<std::string>& names) = 0;
  // Nothing where there is no such value.
  [[nodiscard]] virtual Result<std::optional<Elements>> get(const std::string& name) = 0;
  // Whether its random numbers are those of TapRuns.
  [[nodiscard]] virtual bool draws_alike() const { return false; }
};
// A value that differs is judged unless both sides are right by the operator's reference, each on its own operands.
[[nodiscard]] Result<AccuracyReport> compare_with_values(const Compiled& compiled, OtherValues& other,
                                                         const std::map<std::string, Tensor>& inputs,
                                                         const SymValues& sizes, const AccuracyOptions& options);

// Those of another compiled model.
struct OtherRun {
  const Compiled& compiled;
  const SymValues& sizes;
  TapOptions taps;
};
[[nodiscard]] Result<AccuracyReport> compare_with_run(const Compiled& compiled, const OtherRun& other,
                                                      const std::map<std::string, Tensor>& inputs,
                                                      const SymValues& sizes, const AccuracyOptions& options);

// By value of the graph.
[[nodiscard]] std::vector<double> tolerances(const Graph& graph);

} // namespace tessera::accuracy
