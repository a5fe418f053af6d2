// The interface of those that only run executables: thread pool, executor, statistics. One executor per thread or
// stream of requests; the Executable (executable.h) is shared. Part of the installed interface.
#pragma once
#include "base/tensor.h"
#include "symbols/expr.h"
#include <functional>
#include <map>
#include <memory>
#include <span>

namespace tessera {

struct Executable;
class Cache;         // runtime/cache/cache.h
class MemoryAccount; // runtime/memory_account.h

namespace cuda {
class Context;      // runtime/cuda/context.h
class LibraryStart; // runtime/cuda/library_start.h
} // namespace cuda

// Thread pool shared by executors: the caller and `threads` - 1 helpers (helper_threads.h). Libraries run
// single-threaded inside its loops.
class ThreadPool {
public:
  static std::shared_ptr<ThreadPool> create(int threads = 0); // 0: all cores this process may use
  virtual ~ThreadPool() = default;
  [[nodiscard]] virtual int threads() const = 0;
  // Calls body(begin, end, worker) over [0, n) in chunks of at least `grain`; returns when all is done. worker <
  // threads(). A call from inside a body runs inline. An exception of a body ends the loop and leaves this call, as
  // one of region()'s body leaves that; no thread is inside then.
  virtual void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int)>& body) = 0;
  // Runs `body` with the workers kept at hand: loops that it starts (on its own thread) begin in less than a
  // microsecond.
  virtual void region(const std::function<void()>& body) { body(); }
};

// Why a variant does not fit a call, where another one may: an Assumed guard does not hold, or the device's libraries do
// not compute calls of the variant (one is missing, or has no kernel for these sizes).
struct GuardMiss {
  std::string guard; // its text; empty where a library refused
  std::string reason, where;
  std::map<std::string, int64_t> sizes; // symbol -> value of this call
  // The steps of that variant that were refused, by name.
  std::shared_ptr<const Executable> refused_in;
  std::vector<std::string> refused = {};
};

// Named ranges of the calling thread for a profiler: one for each call, and within it one for each step. They nest.
class RangeMarker {
public:
  virtual ~RangeMarker() = default;
  virtual void begin(const std::string& name) = 0;
  virtual void end() = 0;
};

struct ExecutorOptions {
  std::shared_ptr<ThreadPool> pool; // created when empty
  // Most bytes that this executor may hold for its runs, 0 for any number; or the account that executors share, with a
  // limit of its own.
  int64_t memory_limit = 0;
  std::shared_ptr<MemoryAccount> memory;
  // Fills arena and outputs with NaN patterns before each run, for tests; on the host, a step that writes outside its
  // temporaries or scratch memory is an error.
  bool poison = false;
  bool profile = false; // per-step times, in calls that are given a RunStats
  // With `profile`: a GPU begins a call when the host has submitted its steps, so that none of them waits for the host.
  bool profile_submitted = false;
  // With ranges, each step is launched by itself: a GPU replays none as a graph. TESSERA_NVTX=1: those of NVTX.
  std::shared_ptr<RangeMarker> ranges;
  // A call of a new shape waits for plans that a GPU's libraries take long to make (TESSERA_CUDNN_WAIT=1, too).
  // Otherwise it is computed another way until they are there.
  bool wait_for_plans = false;
  // The GPU that executables whose target is "cuda ..." run on, as the driver counts them; or a context that is open
  // already.
  int gpu = 0;
  std::shared_ptr<cuda::Context> gpu_context;
  std::shared_ptr<cuda::LibraryStart> gpu_libraries; // what has been begun for them, which the executor keeps
  // The place where choices of a GPU's libraries are kept for later processes; those of a context are kept in one, the
  // last that was given. Without one, they are kept in memory.
  std::shared_ptr<Cache> cache;
  bool before_others = false; // the executor's own stream goes before others of the GPU
  // Waits for the GPU after each step, so that an error names the step that made it. TESSERA_CUDA_SYNC=1, too.
  bool synchronize_launches = false;
};

// Times of a profile are milliseconds of the host's steady clock; those of a GPU are put there by the moment at which the
// host saw its last event, some microseconds late.
struct StepProfile {
  std::string name;    // step_ids()
  int step = 0;        // index into Executable::steps
  double ms = 0;       // on the device
  int64_t bytes = 0;   // that it reads and writes at these sizes; 0 where only the run defines them
  double begin_ms = 0; // on the device
  double submit_begin_ms = 0, submit_ms = 0; // on the host: until the device has it
  bool on_host = false;                      // it runs while it is submitted: host steps, control flow
  std::string kernel;                        // symbol of the launched kernel; empty: none
  int64_t blocks = 0;                        // of the launch, or programs on the host
  int threads = 0;                           // of a block; 0 on the host
};
// Work of the host in a profiled call other than its steps: "bind", "guards", "plan" and so on, one after the other.
struct HostPhase {
  std::string name;
  double begin_ms = 0, ms = 0;
};
struct RunStats {
  double total_ms = 0, plan_ms = 0; // plan: shape plan of a new shape, library primitives included
  int variant = 0;                  // which executable ran
  bool new_shape = false;
  int recompiles = 0; // during this call
  int replans = 0;    // plans of sizes that were made again, with other choices of libraries
  int renewals = 0;   // variants that came, went or got better code at its beginning
  double recompile_ms = 0;
  std::vector<GuardMiss> misses;
  int64_t arena_bytes = 0;
  int host_steps = 0;             // steps that ran by their reference on the host
  int64_t host_bytes = 0;         // on a GPU: copied between it and the host for them
  std::vector<StepProfile> steps; // when profiling, as are the rest
  double begin_ms = 0;            // of the call; it lasted total_ms
  std::vector<HostPhase> phases;
};

// Memory of a GPU (of the host, where it says so) that the caller owns: row-major, contiguous, any address that is
// aligned to the element.
struct DeviceTensor {
  DType dtype = DType::F32;
  Dims dims;
  void* data = nullptr;
};

// Memory for output `output` of a call, once its type and sizes are known: at least as many bytes as these take,
// aligned to the element, that overlap no input and no other output: else the call ends with the error Usage or BadInput.
// A call requests each once, also where another variant takes it over.
using OutputAllocator = std::function<Result<void*>(size_t output, DType dtype, const Dims& dims)>;

// Memory of the GPU for what a call computes in between: at least `bytes`, aligned to 256, which nothing else uses until
// the call has returned and its stream has got to the end of what the call has put on it. A call asks once or a few
// times. On the host it does not ask.
using ScratchAllocator = std::function<Result<void*>(int64_t bytes)>;
// Inputs whose contents the caller does not need any more: a call may put what it computes in between into their memory,
// behind their last readers, and into that of outputs before they are written. No other input or output overlaps one.
struct DonatedInputs {
  std::span<const uint8_t> flags; // per input, in the model's order
  bool overwritten = false;       // by the call, also where it failed: whether it has begun to use their memory
};

class Executor {
public:
  // `variants`: tried in order; the last one is the generic one. All are for the same device: the host, or a GPU, which
  // is opened here (Errors: no driver, no GPU, code for another GPU). Weights are packed, or copied to the GPU, when
  // they are first needed, and shared by executors and variants.
  [[nodiscard]] static Result<std::unique_ptr<Executor>> create(std::vector<std::shared_ptr<const Executable>> variants,
                                                                ExecutorOptions options = {});
  virtual ~Executor() = default;
  // Inputs by name. Outputs are fresh tensors (in model order) unless given in `outputs` (dtype and dims must fit).
  // Errors: UnknownInput, MissingInput, BadInput (dtype, rank, dimension; an output whose memory overlaps an input's or
  // another output's), GuardFailed, OutOfMemory, DeviceError; Usage where another thread is in a call of this executor.
  // The executor stays usable after any error.
  [[nodiscard]] virtual Result<std::vector<Tensor>> run(const std::map<std::string, Tensor>& inputs,
                                                        RunStats* stats = nullptr,
                                                        std::vector<Tensor>* outputs = nullptr) = 0;
  // On a GPU, without a copy: inputs by name and all outputs, in model order, are memory of it. `stream` is a CUstream
  // of the GPU's primary context (null: the default stream) on which the inputs are made; outputs are there when it has
  // got to the end of what this puts on it. Does not wait for the GPU, unless the executable has host steps. Memory
  // that is not aligned to 16 bytes is copied. Inputs and outputs stay the caller's and must live until the stream is
  // there. Errors: as for run(), and Usage for an executable that is not for a GPU. What goes wrong on the GPU later, a
  // bounds violation included, is reported by wait(), or by a later call that finds it.
  // A stream that the caller captures gets the call's kernels and library calls, and nothing else happens: docs/runtime.md,
  // "Graphs of the caller". Error Usage where there was no call of such sizes before, UnsupportedFeature where a step needs the host.
  [[nodiscard]] virtual Status run_on_device(const std::map<std::string, DeviceTensor>& inputs,
                                             std::span<const DeviceTensor> outputs, void* stream,
                                             RunStats* stats = nullptr) = 0;
  // The same for callers that count: inputs by position, in the model's order, and memory of outputs requested when
  // their sizes are known, those that depend on values included. On a GPU as run_on_device(); on the host, in its
  // memory. `scratch`: null: memory that the executor keeps from call to call. `donated`: null: none.
  [[nodiscard]] virtual Status call(std::span<const DeviceTensor> inputs, const OutputAllocator& outputs, void* stream,
                                    RunStats* stats = nullptr, const ScratchAllocator* scratch = nullptr,
                                    DonatedInputs* donated = nullptr) = 0;
  // The type and sizes of every output, in model order, that inputs of these types and sizes lead to (no data is looked
  // at or given): what run_on_device() wants memory for. Guards are checked as in a run, and a variant is compiled
  // where one is missing. Errors: UnknownInput, MissingInput, BadInput, GuardFailed, SizeOverflow; UnsupportedFeature
  // where a size depends on values, as NonZero's does.
  [[nodiscard]] virtual Result<std::vector<DeviceTensor>>
  output_sizes(const std::map<std::string, DeviceTensor>& inputs, RunStats* stats = nullptr) = 0;
  // Until all that run_on_device() started is done, and nothing is being made or loaded in the background: libraries'
  // plans for shapes that were run, kernels of products. Errors of it that have not been reported yet: DeviceError, BadInput.
  [[nodiscard]] virtual Status wait() = 0;
  // Runs until a further call of these sizes has nothing to prepare: variants, plans, graphs of a GPU. Of one call's
  // errors, those of run() and wait().
  [[nodiscard]] virtual Status warm_up(const std::map<std::string, Tensor>& inputs, RunStats* stats = nullptr) = 0;
  // Waits for what runs and gives back the memory that calls have left behind, weights excepted: arenas, plans of shapes,
  // graphs. The next call of a shape prepares it again. Errors: those of wait().
  [[nodiscard]] virtual Status trim() = 0;
  // States: values that the model changes in each call and reads in the next, by their place in Executable::states.
  // They are the executor's: each begins with the model's values. A call that ends with an error leaves them as they
  // were, and so does warm_up(); one on a GPU that does not wait changes them whatever it finds later. A graph that a
  // call was captured into changes them in each of its runs. Between calls only; what runs on a GPU comes first.
  // A copy on the host. Errors: Usage (there is no such state), DeviceError, OutOfMemory.
  [[nodiscard]] virtual Result<Tensor> read_state(size_t index) = 0;
  // Errors: also BadInput, for a value of another type or sizes.
  [[nodiscard]] virtual Status write_state(size_t index, const Tensor& value) = 0;
  [[nodiscard]] virtual Status reset_states() = 0;                                           // to the model's values
  [[nodiscard]] virtual std::vector<std::shared_ptr<const Executable>> variants() const = 0; // in the order of calls
  [[nodiscard]] virtual int64_t arena_bytes() const = 0; // planned for the last shape
};

} // namespace tessera
