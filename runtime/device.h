// The differences between devices when an executable runs: where memory comes from, how steps are executed, how bytes
// get to and from the host. All else (which variant, guards, plans of sizes and memory, host steps, outputs,
// statistics) is the executor's and the same for every device.
//
// A Device belongs to one executor and is used by one thread at a time. The calls of one run, in order:
//   begin  (enter  place_outputs  {replay | {execute | fetch... store...}*})* one round per segment  finish
// each inside of around(). After an error, and when a run is given up for another variant, abandon() instead of
// finish(). What is put on a GPU's stream may fail later: fetch() and finish() return errors of steps that came before.
#pragma once
#include "base/stopwatch.h"
#include "runtime/executor.h"
#include "runtime/shape_plan.h"

namespace tessera {

// Where the buffers of a variant are in the current run, by BufferId.
struct BufferTable {
  std::vector<void*> pointers; // addresses on the device; of strings and of what only host steps use: none, or stale
  std::vector<const Dims*> dims;
  std::vector<int64_t> bytes;
};

// The device's data for a variant of one executor (code, constants) and for a plan (prepared steps).
class LoadedCode {
public:
  virtual ~LoadedCode() = default;
  // Steps that the last plan() failed for because a library of the device does not compute them, by name.
  std::vector<std::string> refused;
  // Runs read constants where the executable has them, not from copies that add() made.
  bool constants_in_place = false;
};
class DevicePlan {
public:
  virtual ~DevicePlan() = default;
  [[nodiscard]] virtual int64_t host_bytes() const = 0; // that it takes, about
};

// A state (Executable::states) of an executor: what calls read, and where a call puts the new value. Views of
// KeptMemory.
struct StateValue {
  Tensor value, next;
};

// Memory of a device that lives as long as that, and its bytes to and from the host, between runs: what was started
// before comes first.
class KeptMemory {
public:
  virtual ~KeptMemory() = default;
  [[nodiscard]] virtual Result<std::byte*> allocate(int64_t bytes) = 0;
  [[nodiscard]] virtual Status write(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  [[nodiscard]] virtual Status read(std::byte* to, const std::byte* from, int64_t bytes) = 0;
};

struct DeviceCall {
  const Variant& variant;
  LoadedCode& loaded;
  BufferTable& table;
  std::span<const Tensor* const> inputs; // as the variant's
  bool on_device = false;                // inputs and outputs are memory of the device
  void* stream = nullptr;                // on_device: the caller's
  RunStats& stats;
  const Variant::CallState& sizes;           // of symbols, as far as the run has bound them
  bool captured = false;                     // Device::captures()
  const ScratchAllocator* scratch = nullptr; // of the caller; null: none
  // The changes of states when the run is finished: `value` shows what `next` does now. Empty: they stay as they are.
  // Inputs and outputs of states are memory of the device in any case.
  std::span<StateValue> changes = {};
};

// The device's services for control steps, whose bodies run in executors of their own.
class InnerRuns {
public:
  virtual ~InnerRuns() = default;
  // Options of an executor on the same device, and the `stream` of its calls.
  [[nodiscard]] virtual ExecutorOptions options(ExecutorOptions outer) const = 0;
  [[nodiscard]] virtual void* stream() const = 0;
  // Memory that lives as long as its owner; given back in the order of the run.
  [[nodiscard]] virtual Result<std::shared_ptr<std::byte>> allocate(int64_t bytes) = 0;
  // Bytes within the device's memory, and between it and the host, behind what was started before; what is read is there
  // when it returns.
  [[nodiscard]] virtual Status move(void* to, const void* from, int64_t bytes) = 0;
  [[nodiscard]] virtual Status read(void* to, const void* from, int64_t bytes) = 0;
  [[nodiscard]] virtual Status write(void* to, const void* from, int64_t bytes) = 0;
};

// Adds the phase that lasts as long as this lives; nothing where there is no list.
class PhaseTimer {
public:
  PhaseTimer(std::vector<HostPhase>* to, const char* name) : to_(to) {
    if (to_) to_->push_back({name, host_clock_ms(), 0}), at_ = to_->size() - 1;
  }
  ~PhaseTimer() {
    if (to_) (*to_)[at_].ms = host_clock_ms() - (*to_)[at_].begin_ms;
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

private:
  std::vector<HostPhase>* to_;
  size_t at_ = 0;
};

// A range of a profiler that lasts as long as this lives; nothing without a marker.
class NamedRange {
public:
  NamedRange(RangeMarker* marker, const std::string& name) : marker_(marker) {
    if (marker_) marker_->begin(name);
  }
  ~NamedRange() {
    if (marker_) marker_->end();
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

private:
  RangeMarker* marker_;
};

class Device {
public:
  virtual ~Device() = default;

  // A variant joins the executor; `table` is the one of all its runs. Errors: UnsupportedFeature (code for another
  // machine).
  [[nodiscard]] virtual Result<std::unique_ptr<LoadedCode>> add(const Variant& variant, BufferTable& table) = 0;
  // Which steps of a segment are left out at these sizes (SegmentPlan::left_out): a library call, or the steps instead
  // of it. Sizes of buffers are known. `wait`: until what is made in the background for these sizes is there.
  [[nodiscard]] virtual Status choose(const Variant& variant, int segment, const Variant::CallState& call, bool wait,
                                      SegmentPlan& plan) = 0;
  // Completes a plan whose sizes and launches are known: library calls, scratch memory. `call` holds the evaluated
  // sizes. Where libraries refuse calls, all of them are looked at and LoadedCode::refused says which; the error is
  // the first one's.
  [[nodiscard]] virtual Status plan(const Variant& variant, LoadedCode& loaded, int segment,
                                    const Variant::CallState& call, SegmentPlan& plan) = 0;
  // How many programs of a kernel run at the same time, at most. Errors as for plan().
  [[nodiscard]] virtual Result<int64_t> resident_programs(LoadedCode& loaded, const KernelLaunch& kernel) = 0;
  // Arena offsets and sizes are multiples of it.
  [[nodiscard]] virtual int64_t alignment() const = 0;
  // Bytes behind each buffer of the arena that nothing may touch (ExecutorOptions::poison).
  [[nodiscard]] virtual int64_t red_zone() const { return 0; }
  // Most bytes that the device's buffers can have together.
  [[nodiscard]] virtual int64_t memory() const { return INT64_MAX; }
  // Threads that each have SegmentPlan::worker_scratch bytes.
  [[nodiscard]] virtual int workers() const = 0;

  // Everything below is called from inside of `body`. Error: the device cannot be used.
  [[nodiscard]] virtual Status around(const std::function<void()>& body) = 0;
  // Whether the caller captures `stream` into a graph of its own. Such a run puts its steps on the stream and does nothing
  // else there: no plan is made, nothing is waited for or read back, and no memory is used that another call uses.
  // Error Usage: the stream cannot be used at present.
  [[nodiscard]] virtual Result<bool> captures(void* /*stream*/) { return false; }
  // Sets the addresses of constants and inputs.
  [[nodiscard]] virtual Status begin(const DeviceCall& call) = 0;
  // Makes room for the plan's arena and scratch, and sets the addresses of the segment's temporaries. Error
  // OutOfMemory; a later run may succeed.
  [[nodiscard]] virtual Status enter(int segment, const SegmentPlan& plan) = 0;
  // Sets the addresses of the outputs that get their memory in this segment (Variant::output_segment). `outputs`, in
  // model order: tensors of the right type and sizes. Strings have no address.
  [[nodiscard]] virtual Status place_outputs(int segment, std::span<Tensor> outputs) = 0;
  // Starts all steps of the segment as one, in place of execute() for each. False: nothing was started. Not called while
  // a profile is made. `wait`: as in choose().
  [[nodiscard]] virtual Result<bool> replay(const SegmentPlan&, bool /*wait*/) { return false; }
  // A kernel, a library call, or a copy of anything but strings.
  [[nodiscard]] virtual Status execute(int step, const StepForm& form, const StepPlan& plan, DevicePlan* device) = 0;
  // A buffer's value for a host step; it may show the device's memory, and is not used after the run.
  [[nodiscard]] virtual Result<Tensor> fetch(BufferId buffer) = 0;
  // A host step's result becomes the buffer's value. The executor holds the tensor until the run ends; it is replaced
  // where it shows the device's own memory. True: `value` itself need not be held, the device has it.
  [[nodiscard]] virtual Result<bool> store(BufferId buffer, Tensor& value) = 0;
  // The services for control steps.
  [[nodiscard]] virtual InnerRuns& inner() = 0;
  // Profile: a point in time, before and after each step.
  [[nodiscard]] virtual Status mark() = 0;
  // `outputs`: those of place_outputs(), or others of the same sizes, which the results are then copied to. They are
  // complete when it returns (on_device: when the stream gets there). Bounds violations are BadInput.
  // Fills ms and begin_ms of stats.steps from the marks.
  [[nodiscard]] virtual Status finish(std::span<Tensor> outputs) = 0;
  virtual void abandon() = 0;
  // on_device: waits for all that was started. Errors of it that have not been reported yet. Inside of around(), too.
  [[nodiscard]] virtual Status wait() = 0;
  // The memory of values that stay from run to run.
  [[nodiscard]] virtual KeptMemory& kept() = 0;
  // Gives back the memory of earlier runs; nothing runs, and there are no plans.
  [[nodiscard]] virtual Status trim() = 0;
};

[[nodiscard]] Result<std::unique_ptr<Device>> make_cpu_device(const ExecutorOptions& options);
// `executables`: those that it will run at first. Errors: those of cuda::Context::open.
[[nodiscard]] Result<std::unique_ptr<Device>>
make_cuda_device(std::span<const std::shared_ptr<const Executable>> executables, const ExecutorOptions& options);

// Ranges for NVIDIA's profilers (cuda/nvtx.h), where TESSERA_NVTX=1 wants them; else null. Error UnsupportedFeature:
// NVIDIA's library is nowhere.
[[nodiscard]] Result<std::shared_ptr<RangeMarker>> wanted_ranges();

// The error of a bad index; `sizes` are those of the call, by symbol (Variant::symbol_values).
[[nodiscard]] Diagnostic bad_index(const KernelLaunch& kernel, const IndexReport& report,
                                   const std::unordered_map<uint64_t, int64_t>& sizes);

} // namespace tessera
