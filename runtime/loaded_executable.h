// A variant in one executor: what it keeps between calls, and one call of it from bound inputs to outputs. Host steps
// and the values they make and take, and control steps (control.h), are handled here, for every device alike.
#pragma once
#include "base/mapped_file.h"
#include "runtime/control.h"

namespace tessera {

class LoadedExecutable;

// Why a variant did not answer a call. Where library calls are refused, nothing has run yet in their segment.
struct Refusal {
  std::optional<GuardMiss> miss; // nothing: another variant would not answer the call either
  // The error of the call, where no other variant answers it: `known`, or the text of this guard of the variant, which
  // is made when it is needed.
  std::optional<Diagnostic> known;
  const LoadedExecutable* variant = nullptr;
  int guard = -1;
  [[nodiscard]] Diagnostic error() const;
};

struct CallArguments {
  std::vector<Tensor>* outputs = nullptr;     // given by the caller, or null
  const OutputAllocator* allocator = nullptr; // of the caller's memory for outputs, or null
  bool on_device = false;                     // inputs and outputs show memory of the device
  void* stream = nullptr;                     // on_device: the caller's
  const ScratchAllocator* scratch = nullptr;  // of the caller's memory for what lies between, or null
  DonatedInputs* donated = nullptr;           // or null: the caller keeps all of them
  bool captured = false;                      // on_device: into a graph of the caller (Device::captures())
  bool profile = false;
  bool wait_for_plans = false;       // until what is made in the background for these sizes is there
  std::span<StateValue> states = {}; // the executor's, which the last inputs show
  bool changes_states = true;        // by their new values, once the call is done
  // The executor runs a body of a control step: a miss ends the call of the step's own executor, which sees to what
  // OutputAllocator promises.
  bool of_body = false;
  bool again = false; // after a run that lacked memory: the caller has said where outputs lie
};

class LoadedExecutable {
public:
  // Errors: those of Variant::create and Device::add. Device and options outlive it.
  [[nodiscard]] static Result<std::unique_ptr<LoadedExecutable>> create(std::shared_ptr<const Executable> executable,
                                                                        Device& device, const ExecutorOptions& options);

  const Variant& variant() const { return *variant_; }
  Variant::CallState call;

  // Binds the sizes of the inputs, which live until the run is over, and checks the guards. Nothing: the variant fits.
  [[nodiscard]] std::optional<Refusal> refusal(std::span<const Tensor* const> inputs, std::vector<HostPhase>* phases);
  using Outcome = std::variant<std::vector<Tensor>, Refusal>;
  // Inside of Device::around(), once refusal() has none. Fills variant-independent fields of `stats` but total_ms and
  // recompiles.
  [[nodiscard]] Outcome run(const CallArguments& arguments, RunStats& stats);
  // The type and sizes of every output, in model order, for the bound inputs, without data. Error UnsupportedFeature
  // where a size depends on values.
  [[nodiscard]] Result<std::vector<DeviceTensor>> output_sizes();
  [[nodiscard]] int64_t arena_bytes() const { return arena_bytes_; } // of the last run
  // Inside of Device::around(). Until what bodies of control steps started is done. Errors of it.
  [[nodiscard]] Status wait();
  // Drops the values of the last run.
  void let_go();
  // Drops plans of shapes and memory for outputs as well; nothing of the variant runs.
  void trim();

private:
  LoadedExecutable(Device& device, const ExecutorOptions& options)
      : device_(device), options_(options), plans_(options.memory) {}
  [[nodiscard]] Status check_captured();
  [[nodiscard]] Status unchanged_files() const;
  [[nodiscard]] Status steps(const CallArguments& arguments, std::optional<int>& missed);
  [[nodiscard]] Refusal refused_by(int guard) const;
  [[nodiscard]] Refusal refused(Status status);
  [[nodiscard]] bool improve(SegmentPlan& plan, bool wait) const;
  [[nodiscard]] Result<SegmentPlan*> enter(int segment, const CallArguments& arguments);
  [[nodiscard]] Result<SegmentPlan*> plan_for(int segment, const CallArguments& arguments);
  [[nodiscard]] bool place_lent(const SegmentPlan& plan);
  void decide_lending(const CallArguments& arguments);
  [[nodiscard]] Status check_overlaps(std::span<const Tensor> outputs);
  [[nodiscard]] bool defers_output(size_t o, const CallArguments& arguments) const;
  [[nodiscard]] Status make_output(size_t o, const CallArguments& arguments);
  [[nodiscard]] Status own_output(size_t o);
  [[nodiscard]] Status request_output(size_t o, const OutputAllocator& allocator);
  [[nodiscard]] Status execute(const StepForm& form, const StepPlan& step, SegmentPlan& plan, int index);
  [[nodiscard]] Status profiled(const StepForm& form, const StepPlan& step, SegmentPlan& plan, int index);
  void count_bytes();
  [[nodiscard]] std::vector<HostPhase>* phases() const { return profile_ ? &stats_->phases : nullptr; }
  [[nodiscard]] Status copy_strings(const CopyStep& copy);
  [[nodiscard]] Result<Tensor> value(BufferId buffer);
  [[nodiscard]] Status host(const HostStep& step, int index);
  [[nodiscard]] Status control(const StepPlan& step, const SegmentPlan& plan, int index);
  [[nodiscard]] Status of_this_call(Status status) const;
  [[nodiscard]] Status define(int index, int segment);
  [[nodiscard]] Status store_results(int index);
  void hold(size_t id, Tensor t);
  void give_held(BufferId buffer);

  Device& device_;
  const ExecutorOptions& options_;
  std::unique_ptr<Variant> variant_;
  std::vector<std::shared_ptr<const MappedFile>> files_; // that constants are read from
  BufferTable table_;
  ShapePlanCache plans_;                                // launches look at table_
  std::map<int, std::unique_ptr<ControlRun>> controls_; // by step, once it has run
  std::unique_ptr<LoadedCode> loaded_;                  // destroyed first: it waits for what is in flight
  // The memory of outputs given out before: used again when the caller has dropped the tensor.
  std::vector<std::pair<std::shared_ptr<std::byte>, size_t>> spare_outputs_;
  int64_t arena_bytes_ = 0;
  std::vector<SegmentPlan*> entered_; // of the current run
  std::vector<std::string> step_ids_; // when profiling

  // The current run:
  RunStats* stats_ = nullptr;
  bool on_device_ = false, profile_ = false;
  bool begun_ = false;       // on the device
  bool captured_ = false;    // CallArguments::captured
  std::vector<Tensor> held_; // results of host steps, and strings
  std::vector<bool> is_held_;
  bool holding_ = false;
  struct Range { // of addresses, of an input or output
    uintptr_t begin, end;
    const Binding* binding;
  };
  std::vector<Range> written_;                  // of outputs
  std::vector<std::optional<void*>> requested_; // per output: what the caller's allocator has answered
  std::vector<Tensor> given_;                   // outputs
  std::vector<Tensor> host_results_;
  std::optional<GuardMiss> body_miss_;
};

} // namespace tessera
