// Candidates of one nest, each compiled as a model of one kernel, and run on the device with data made up for it.
#pragma once
#include "codegen/device/backend.h"
#include "codegen/schedule/candidates.h"
#include "codegen/tune/search.h"
#include "runtime/executor.h"

namespace tessera {

// What is to be measured. `graph` has the types of the nest's values; the nest reads nothing that it writes.
struct MeasuredNest {
  std::string name;
  const Graph& graph;
  const LoopNest& nest;
  const CallSizes& sizes;
  std::span<const Candidate> candidates; // the first one: what the rules choose
};

struct MeasureOptions {
  bool one_by_one = false;       // each candidate is compiled when it is first prepared or run, and not all at once
  int64_t max_bytes = INT64_MAX; // of a nest's inputs and outputs; on a GPU at most a quarter of what is free, too.
                                 // Further sets of them, to be timed on in turn, stay within the same bounds
};

// On the GPU: between events, the level-2 cache overwritten before each run, on several sets of memory in turn
// (cuda::memory_sets), whichever candidate runs. On the host: with its clock, nothing flushed. Results are compared
// with those of the rules' choice: integers and booleans exactly, floats as reductions in another order may differ.
// Errors: of compiling the rules' choice, those of opening the device, OutOfMemory; with `how.max_bytes`,
// UnsupportedFeature for a nest that takes more. What `what` refers to outlives the measurer.
[[nodiscard]] Result<std::unique_ptr<Measurer>> make_measurer(const MeasuredNest& what, const CompileOptions& options,
                                                              const MeasureOptions& how = {});

// What differs between two results of the same nest, or nothing: `a` and `b` are of one type and shape.
[[nodiscard]] std::string difference(const Tensor& actual, const Tensor& expected);

// Contents for an input of a nest: floats in [-0.5, 1.5), integers that index something within it, other integers and
// booleans small. The same for the same operand.
[[nodiscard]] Result<Tensor> made_up(const MeasuredNest& what, size_t operand);

} // namespace tessera
