// Session: the embedding interface. Opens a model, compiles it, runs it, recompiles when shapes demand it.
//
//   auto session = tessera::Session::open("model.onnx");
//   if (!session.ok()) { std::cerr << session.error().str(); return 1; }
//   auto outputs = (*session)->run({{"input_ids", ids}, {"attention_mask", mask}});
//
// A Session may be used by one thread at a time: a call that comes into another one's is an error. Further executors
// over the same compiled code and packed weights come from new_executor(), and may run and recompile on other threads
// at the same time. No exception leaves it, it installs no signal handlers and writes only to the log and the cache
// folder.
//
// Variants. The first one is compiled by open() without knowing any call: it is generic but for what it had to assume
// (two dimensions of a broadcast are equal). A call that violates an assumption, and that no variant fits,
// compiles another one with the sizes of that call as hints. Specialization adds variants that are made for less than
// every shape on purpose. docs/guards.md explains both with an example. A call that a library of the device does not
// compute (it is missing, or has no kernel for these sizes) is no error either: a variant in which the nodes concerned
// are generated loops answers it.
//
// Equal inputs, equal bits. Within a session, whatever its executors have computed in between, the answer to an input is
// bit-identical from call to call, as the same code computes it:
//   - Among variants that are not specialized, the oldest that fits answers. One that is compiled later answers only what
//     none before it fits.
//   - A specialized variant (Adaptive, Exact, `specialize`) goes before them, and may be evicted: where one comes, goes or
//     is replaced by tuning, bits may change, and CompileTotals::swaps counts it. Under Exact and `specialize` it comes in
//     the input's first call.
//   - On a GPU the first calls of a shape may be computed another way while a library makes its plan.
//   - On a GPU sums of floats at repeated indices (scatters, gradients of gathers) are taken in any order.
// `deterministic` excludes what changes bits: Adaptive and tuning are errors, calls wait for libraries' plans, and sums
// have an order.
// From process to process, with `deterministic`, the bits are the same for the same model, options, number of threads,
// device, versions of Tessera and of the libraries, and a cache folder whose records do not change meanwhile, where
//   - the first variant answers, or one that is exact for all sizes; or
//   - the calls that missed a guard, or that a library refused, came in the same order: what is compiled then follows the
//     sizes of the call that missed first. Warm-up with the same ranges compiles what calls within them need in the same
//     order, before any call.
#pragma once
#include "api/sizes.h"
#include "codegen/compilation/options.h"
#include "frontend/options.h"
#include "runtime/run.h"
#include <optional>
#include <string_view>

namespace tessera {

struct SessionVariant;    // a compiled variant (api/session/variant.h, not installed)
struct BackgroundOptions; // measure/tune/background.h, not installed

// Which variants a session has besides those without which a call has no answer (docs/guards.md).
enum class VariantPolicy : uint8_t {
  Generic,  // none
  Adaptive, // for combinations of sizes that recur, once that pays: compiled in the background
  Exact,    // for each combination of sizes, compiled in the call; by `specialize` where that is given
};
[[nodiscard]] std::optional<VariantPolicy> parse_policy(std::string_view name); // "generic", "adaptive", "exact"

struct SessionOptions {
  CompileOptions compile;
  ImportOptions import;
  // `memory` is set where it is empty: the executors of a session share memory_limit.
  ExecutorOptions executor;
  Specializations specialize; // by symbolic dimension ("batch"); empty: no specialized variants
  // Specialized variants that open() compiles, each for all of its conditions: {"batch": Exact 1, "seq": Divisible 8}.
  std::vector<Specializations> variants;
  // A call that no specialized variant fits: compile one for it, or (once there is one) take the generic one.
  enum class OnMiss : uint8_t { Compile, Generic } on_miss = OnMiss::Compile;
  // Specialized variants at most, and bytes of their machine code and of constants that are theirs alone. Beyond it, the one
  // that was used least recently goes; under the policy Generic, whose variants stay, misses take the generic variant.
  int max_variants = 8;
  int64_t max_variant_bytes = int64_t{256} << 20;
  // The ranges that open() warms up, as warm_up_ranges() does. Nothing where it is empty.
  SizeRanges warm_up;
  VariantPolicy policy = VariantPolicy::Generic;
  double compile_share = 0.25; // Adaptive: of the time, that the thread in the background compiles; in (0, 1]
  // Equal inputs have bit-identical results from call to call (above): no code is replaced between calls, and calls wait
  // for libraries' plans. Error Usage of open() together with Adaptive or a tune_share; TESSERA_TUNE_SHARE is not looked at.
  bool deterministic = false;
  bool allow_compiled_file = true;
  std::string compiled_for; // what a compiled file must be for: "cpu", "cuda", "cuda sm_90"; empty: any
  // Kernels take the schedules that `tessera tune` found to be faster on this device (measure/tune); compile.tuned,
  // when it is set, is taken as it is.
  bool use_tuned = true;
  // Kernels that are called often are tuned during the calls, in at most this share of the time: 0.05 for 5 %, 0 for
  // never. What wins is recorded and replaces the kernels between two calls (docs/tuning.md). Empty: what
  // TESSERA_TUNE_SHARE says, else 0. Not with compiled files, nor without use_tuned.
  std::optional<double> tune_share;
  std::shared_ptr<BackgroundOptions> background; // the rest of it, for tests; `share` is set from tune_share
  // Adaptive: what a call of these sizes loses to the generic variant, in microseconds; for tests. Empty: by the cost
  // model.
  std::function<double(const std::map<std::string, int64_t>&)> predicted_loss_us;
  bool compile_only = false; // nothing will be run: no device is opened, and run() is an error
};

struct IoInfo {
  std::string name;
  DType dtype;
  SymShape shape;                    // as the model declares it
  std::vector<SymExpr> indexed = {}; // of an input of integers: extents of the dimensions that they index
  std::string list = {};             // of a List: what it is, "sequence f32[?, 4]", "map i64 f32[]", "optional i64[]"
  bool any_rank = false;             // calls decide the rank, and `shape` says nothing
};

// Counts of a session's compiles.
struct CompileTotals {
  int64_t variants = 0;                    // that it has, those of a compiled file included
  int64_t compiles = 0, failures = 0;      // of variants, imports included
  int64_t kernels = 0, cached_kernels = 0; // that these needed; those of them that the cache folder had
  int64_t cached_plans = 0; // of the compiles: those whose result the cache folder had, without import and compile
  double ms = 0;            // of all compiles, imports included
  double load_ms = 0;       // of a compiled file, which takes none
  int64_t blocking = 0, background = 0; // compiles that a call waited for, and that none did; open()'s are neither
  double blocking_ms = 0;
  int64_t queued = 0;    // combinations of sizes whose variant will be compiled in the background
  int64_t evictions = 0; // of specialized variants
  // Specialized variants that came to an executor or left it, and variants and plans of sizes (RunStats::replans) that
  // were replaced, between two of its calls.
  int64_t swaps = 0;
  int64_t variant_bytes = 0; // of specialized variants (SessionOptions::max_variant_bytes)
  int64_t contained = 0;     // internal failures of compiles that cost a schedule, a route or a pass, not the compile
};

class Session {
public:
  // `path`: an ONNX file, an archive of torch.export (.pt2), or what save() wrote (its variants have no graph:
  // SessionVariant::compiled.graph is null). Errors: those of import and compile; Usage for a specialization of a
  // dimension that the model does not have, or of a compiled file, and for a compiled file that is not for
  // `compiled_for`.
  [[nodiscard]] static Result<std::unique_ptr<Session>> open(const std::string& path, SessionOptions options = {});
  // A program that this process captured. Its weights are used where they lie.
  [[nodiscard]] static Result<std::unique_ptr<Session>> open_program(ProgramSource program,
                                                                     SessionOptions options = {});
  ~Session();

  [[nodiscard]] std::vector<IoInfo> inputs() const;
  [[nodiscard]] std::vector<IoInfo> outputs() const;
  // The values that the model changes in each call and reads in the next, as buffers of a module are: no inputs or
  // outputs of calls. The session's own executor and each new_executor() has values of its own, which begin as the
  // model's. The functions below are of the session's own: see Executor::read_state and those behind it.
  [[nodiscard]] std::vector<IoInfo> states() const;
  [[nodiscard]] Result<Tensor> read_state(size_t index);
  [[nodiscard]] Status write_state(size_t index, const Tensor& value);
  [[nodiscard]] Status reset_states();
  // Outputs in the model's order: fresh ones, or those given (dtype and dims must fit). In `stats`, `variant` indexes
  // variants(). Errors: see Executor::run, and those of compiling another variant.
  [[nodiscard]] Result<std::vector<Tensor>> run(const std::map<std::string, Tensor>& inputs, RunStats* stats = nullptr,
                                                std::vector<Tensor>* outputs = nullptr);
  // On a GPU, with inputs and outputs that lie there, on the caller's stream: see Executor::run_on_device. Variants are
  // compiled as for run().
  [[nodiscard]] Status run_on_device(const std::map<std::string, DeviceTensor>& inputs,
                                     std::span<const DeviceTensor> outputs, void* stream, RunStats* stats = nullptr);
  // Inputs by position, and memory of outputs on request: see Executor::call.
  [[nodiscard]] Status call(std::span<const DeviceTensor> inputs, const OutputAllocator& outputs,
                            void* stream = nullptr, RunStats* stats = nullptr,
                            const ScratchAllocator* scratch = nullptr, DonatedInputs* donated = nullptr);
  // The memory that run_on_device() needs for its outputs: see Executor::output_sizes.
  [[nodiscard]] Result<std::vector<DeviceTensor>> output_sizes(const std::map<std::string, DeviceTensor>& inputs,
                                                               RunStats* stats = nullptr);
  // See Executor::wait.
  [[nodiscard]] Status wait();
  // See Executor::warm_up and Executor::trim, of the session's own executor.
  [[nodiscard]] Status warm_up(const std::map<std::string, Tensor>& inputs, RunStats* stats = nullptr);
  // Makes ready for calls whose sizes lie in ranges: no call within them waits for the compiler, unless values that it
  // reads decide so; the largest sizes fit the memory limit; the typical ones have plans, and under Adaptive and Exact a
  // variant. Sizes outside of the ranges work as before. The model runs on zeros, or on `inputs` where their sizes are those of the
  // ranges. `executor`: one of this session's; null: its own. Errors: Usage for a range of no dimension, a dimension
  // without one, a minimum above the maximum; those of a call, with the sizes.
  [[nodiscard]] Status warm_up_ranges(const SizeRanges& ranges, const std::map<std::string, Tensor>& inputs = {},
                                      Executor* executor = nullptr);
  [[nodiscard]] Status trim();
  // Another executor over the same code and weights, for another thread. It has the variants of this moment and gets
  // others when a call needs them; it must not be used after the session is gone, except for calls that its variants
  // fit.
  [[nodiscard]] Result<std::unique_ptr<Executor>> new_executor();
  // In the order in which they were compiled; the first one is the generic one.
  [[nodiscard]] std::vector<std::shared_ptr<const SessionVariant>> variants() const;
  [[nodiscard]] const ModelInfo& model_info() const; // empty for a compiled file
  // Declarations of the model that do not hold, and effects that a call does not have; one line each.
  [[nodiscard]] const std::vector<std::string>& model_warnings() const;
  // The report of the first variant's compile, as JSON (docs/report.schema.json), with numbers for `sizes` by name of a
  // dimension's symbol: of a compiled file that of the compile which wrote it, at its sizes. `thorough`: with the texts
  // of loop nests, and what each unknown size costs.
  [[nodiscard]] std::string report(const std::map<std::string, int64_t>& sizes = {}, bool thorough = false) const;
  // Writes the variants and the first one's report as a file that open() takes. Errors: those of save_executables.
  // `sizes`: those of report(), at which the times of the file's report hold.
  [[nodiscard]] Status save(const std::string& path, bool embed_weights,
                            const std::map<std::string, int64_t>& sizes = {}) const;
  [[nodiscard]] double import_ms() const; // of open(); 0 of a plan that the cache folder had
  // Does not wait for a compile.
  [[nodiscard]] CompileTotals compile_totals() const;
  // Until nothing is left to tune or to compile in the background; returns at once where nothing is.
  void settle_tuning();

private:
  Session();
  [[nodiscard]] static Result<std::unique_ptr<Session>>
  make(const std::string& path, std::shared_ptr<const ProgramSource> program, SessionOptions options);
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

} // namespace tessera
