// Taps: copies of the values that a compiled model computes on its way, taken in the kernels that it has.
//
// A value with memory becomes an output of the executable. A value that a kernel computes and does not store
// (LoopNest::inner) gets a store of its own, over the axes of the kernel on which it depends, in the type in which the
// kernel computes it. The plan and the schedule of each kernel are those of the model without taps. The outputs of the
// model must have the same bits with and without taps: where they have not, or where the kernel with more stores has
// no code by its schedule, fewer taps are taken at a time, down to one.
//
//   kernel k   y = relu(x * 2 + b)     values mul, add, relu; memory for relu only
//   tapped     stores mul and add, too: two more buffers, the same loops
//
// Random numbers start from the same seeds in every run, so that taps of several runs go together.
//
// Some values cannot be tapped, and are listed: values inside a library's own epilogue or an attention call, values
// that are read at indices which are data, bodies of control flow, and results that no device computes.
#pragma once
#include "codegen/driver/compile.h"
#include "graph/reference/evaluator.h"
#include "runtime/executor.h"

namespace tessera::accuracy {

struct Tap {
  ValueId value;
  size_t group = 0; // index in FusionPlan::groups
  int inner = -1;   // index in LoopNest::inner of the group's nest; -1: the value has memory
};
struct NotTapped {
  ValueId value;
  std::string why;
};
struct Taps {
  std::vector<Tap> taps;             // a value whose elements several kernels compute in part has several
  std::vector<NotTapped> not_tapped; // other values that nodes define
};
// The model must have been compiled with CompileOptions::keep_values.
[[nodiscard]] Taps find_taps(const Compiled& compiled);

// The nest of a group whose inner values can be stored: of a kernel, or of a generated epilogue; null: none.
[[nodiscard]] const LoopNest* tapped_nest(const Group& group);

// A run with taps that begins.
struct TapProgress {
  int run = 0;              // from 1
  size_t taps = 0;          // of this run
  size_t done = 0, all = 0; // taps that earlier runs took or gave up, and all that there are
};
struct TapOptions {
  CompileOptions compile;           // as `compiled` was made with
  ExecutorOptions executor;         // with the device on which it runs
  int64_t bytes = int64_t{1} << 28; // of the taps of one run, about
  size_t per_kernel = 24;           // taps of one kernel in one run, at most
  std::function<void(const TapProgress&)> progress;
};
// A tap and what it held: the value itself, or its elements over the axes of the nest.
struct Tapped {
  Tap tap;
  Tensor tensor;
};
struct TapResults {
  std::vector<Tensor> outputs;                   // of the model without taps
  std::map<ValueId, std::vector<Tapped>> values; // by value
  std::vector<NotTapped> not_tapped;
  int runs = 0;             // with taps
  int taps = 0, inner = 0;  // taps taken, and those of them inside kernels
  bool reproducible = true; // two runs without taps have the same bits; otherwise taps are not checked by their bits
};

// Runs of a model with taps of some of its values each time, so that not all values are in memory at once.
class TapRuns {
public:
  // Runs the model twice without taps. All arguments must outlive it. `sizes`: symbols of the inputs. Errors: those of
  // running the model.
  [[nodiscard]] static Result<TapRuns> create(const Compiled& compiled, const std::map<std::string, Tensor>& inputs,
                                              const SymValues& sizes, const TapOptions& options);
  TapRuns(TapRuns&&) noexcept;
  TapRuns& operator=(TapRuns&&) noexcept;
  ~TapRuns();
  // Bytes of a value's taps; 0: it has none, or only a run says.
  [[nodiscard]] int64_t bytes(ValueId value) const;
  // Adds the taps of these values to results(): several runs where one would hold more than TapOptions::bytes. Errors:
  // those of compiling the model without taps.
  [[nodiscard]] Status run(const std::vector<ValueId>& values);
  [[nodiscard]] TapResults& results();

private:
  class Runner;
  explicit TapRuns(std::unique_ptr<Runner> runner);
  std::unique_ptr<Runner> runner_;
};
// All values at once.
[[nodiscard]] Result<TapResults> run_with_taps(const Compiled& compiled, const std::map<std::string, Tensor>& inputs,
                                               const SymValues& sizes, const TapOptions& options);

// The value of a size at these symbols, by an equality that the graph knows where it has others.
[[nodiscard]] Result<int64_t> size_of(const Graph& graph, const SymExpr& size, const SymValues& symbols);

// A copy of the graph in which what draws random numbers has a seed.
[[nodiscard]] std::shared_ptr<Graph> seeded(const Graph& graph);

// The elements of a value that taps held, in the value's own shape.
struct Elements {
  Tensor tensor;             // of the type in which they were computed
  std::vector<bool> present; // by element; empty: all of them
};
// `sizes`: every symbol of the value and of its kernel.
[[nodiscard]] Result<Elements> elements_of(const Compiled& compiled, const std::vector<Tapped>& tapped,
                                           const SymValues& sizes);

// Whether two tensors have the same type, shape and bits.
[[nodiscard]] bool same_bits(const Tensor& a, const Tensor& b);

} // namespace tessera::accuracy
