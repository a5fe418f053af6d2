// How far the values of a compiled model are from a reference, operator by operator.
//
// The error of a value is ||seen - expected|| / ||expected||. Against the exact reference (f64), an operator adds error
// of its own, and passes on the error of its operands, larger or smaller:
//
//   error   of the value against the reference's value
//   own     of the value against the operator's reference on the operands that the device computed
//
// A subtraction that cancels has a small error of its own and a large error. The tolerance of a value is that of the
// coarsest type among all that it was computed from: ops::tolerance(), 2e-3 for f16; behind many operators it grows with
// the root of their number, as the sum of their roundings does.
#pragma once
#include "codegen/accuracy/taps.h"

namespace tessera::accuracy {

struct ValueError {
  ValueId value;
  double error = 0, tolerance = 0;
  std::optional<double> own; // where all operands were tapped whole
  double max_abs = 0;
  int64_t compared = 0; // elements
  Dims at;              // of the first NaN or infinity that the reference has not, else of the largest difference
  double seen = 0, expected = 0;
  bool not_finite = false; // seen is NaN or infinite, expected is another value
  [[nodiscard]] bool departs() const { return !(error <= tolerance); }
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
};
// Against the exact reference. Errors: those of run_with_taps() and of the references.
[[nodiscard]] Result<AccuracyReport> compare_with_reference(const Compiled& compiled,
                                                            const std::map<std::string, Tensor>& inputs,
                                                            const SymValues& sizes, const AccuracyOptions& options);

// Values of another compiled model at the same inputs, by name.
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
