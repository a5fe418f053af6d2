// Measures candidates of one loop nest. Each is compiled as a model of one kernel and run with random inputs.
#pragma once
#include "codegen/compilation/backend.h"
#include "codegen/schedule/candidates.h"
#include "measure/tune/search.h"
#include "runtime/executor.h"

namespace tessera {

// The nest to measure. `graph` has the types of its values; the nest reads nothing that it writes.
struct MeasuredNest {
  std::string name;
  const Graph& graph;
  const LoopNest& nest;
  const CallSizes& sizes;
  std::span<const Candidate> candidates; // the first one is the default schedule (the cost model's choice)
};

struct MeasureOptions {
  bool compile_lazily = false;   // each candidate is compiled when first prepared or run, instead of all at once
  int64_t max_bytes = INT64_MAX; // of all sets of inputs and outputs; on a GPU also at most a quarter of the free
                                 // memory
};

// GPU: time between events; the L2 cache is overwritten before each run, and runs alternate between several sets of
// buffers (cuda::memory_sets). Host: wall-clock time, caches are not flushed. Results are compared with those of the
// default schedule: integers and booleans exactly, floats within the error of reordered reductions.
// Errors: those of compiling the default schedule and of opening the device, OutOfMemory, and UnsupportedFeature for a
// nest that needs more than `how.max_bytes`. The objects that `what` refers to must outlive the measurer.
[[nodiscard]] Result<std::unique_ptr<Measurer>> make_measurer(const MeasuredNest& what, const CompileOptions& options,
                                                              const MeasureOptions& how = {});

// Describes the first difference of two results of the same type and shape; empty if they agree.
[[nodiscard]] std::string difference(const Tensor& actual, const Tensor& expected);

// Pseudorandom contents of a nest's input: floats in [-0.5, 1.5); integers that are indices within the indexed extent;
// other integers and booleans 0 or 1. Deterministic per operand.
[[nodiscard]] Result<Tensor> random_input(const MeasuredNest& what, size_t operand);

} // namespace tessera
