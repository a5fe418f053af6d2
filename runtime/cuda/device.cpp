// An NVIDIA GPU as a device of the executor: everything is put on one stream in order; the host waits where it needs a
// value, and at the end of a call that gives tensors.
#include "runtime/device.h"
#include "base/environment.h"
#include "base/log.h"
#include "runtime/cuda/attention_choice.h"
#include "runtime/cuda/constants.h"
#include "runtime/cuda/inner_runs.h"
#include "runtime/cuda/kept_memory.h"
#include "runtime/cuda/library_choices.h"
#include "runtime/cuda/library_start.h"
#include "runtime/cuda/pending_work.h"
#include "runtime/cuda/product_kernels.h"
#include "runtime/cuda/run_memory.h"
#include "runtime/cuda/step_times.h"
#include <algorithm>
#include <cstring>

namespace tessera::cuda {
namespace {

constexpr uintptr_t kAccess = 16; // kernels make accesses of that many bytes

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kAccess == 0; }
CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

class CudaDevice;

struct CudaLoadedCode final : LoadedCode {
  CudaLoadedCode(CudaDevice& owner, const Variant& v, BufferTable& t, std::shared_ptr<LoadedExecutable> c)
      : device(owner), variant(v), table(t), code(std::move(c)), reports(v) {}
  ~CudaLoadedCode() override;
  CudaDevice& device;
  const Variant& variant;
  BufferTable& table;
  std::shared_ptr<LoadedExecutable> code;
  Reports reports;
  // These are set from the first run on. Graphs of the caller keep them, too.
  std::shared_ptr<DeviceConstants> constants;
  std::shared_ptr<IndexReport> report_memory;
};

// Memory that the caller gives for a call.
class GivenMemory final : public CallMemory {
public:
  const ScratchAllocator* from = nullptr;
  Result<std::byte*> take(int64_t bytes, const char* what) override {
    TESSERA_ASSIGN(void* memory, (*from)(bytes));
    if (memory == nullptr)
      return Diagnostic(ErrorCode::OutOfMemory, "the caller has no memory for " + std::string(what) + " of " +
                                                    std::to_string(bytes) + " bytes");
    if (reinterpret_cast<uintptr_t>(memory) % kBlockAlignment != 0)
      return Diagnostic(ErrorCode::Usage, "the memory given for " + std::string(what) + " is not aligned to " +
                                              std::to_string(kBlockAlignment) + " bytes");
    return static_cast<std::byte*>(memory);
  }
};

class CudaDevice final : public Device {
public:
  static Result<std::unique_ptr<Device>> create(std::span<const std::shared_ptr<const Executable>> executables,
                                                const ExecutorOptions& options) {
    auto start = std::make_unique<LibraryStart>();
    auto context = options.gpu_context;
    if (!context) {
      LibraryNeeds needs;
      for (const auto& executable : executables) needs.add(*executable);
      start->begin(options.gpu, needs);
      TESSERA_ASSIGN(context, Context::open(options.gpu));
    }
    std::unique_ptr<CudaDevice> device(new CudaDevice(context, options, std::move(start)));
    Context::Current current(*context);
    TESSERA_TRY(current.status());
    TESSERA_ASSIGN(device->own_stream_, Stream::create(context, options.before_others));
    TESSERA_TRY(device->pending_.create());
    TESSERA_ASSIGN(device->kernels_, ProductKernels::of(*context));
    device->kernels_->enter();
    TESSERA_ASSIGN(device->recorder_, Recorder::of(*context));
    TESSERA_ASSIGN(device->captured_calls_, CapturedCalls::of(*context));
    TESSERA_ASSIGN(device->choices_, LibraryChoices::of(*context));
    device->choices_->keep_in(options.cache);
    return std::unique_ptr<Device>(std::move(device));
  }
  ~CudaDevice() override {
    Context::Current current(*context_);
    quiesce();
    start_.reset(); // it may still request plans
    if (plans_are_made_) finish_attention(*context_);
    if (kernels_) kernels_->leave();
    if (choices_) choices_->flush();
    inner_.release(stream());
    memory_.release(stream());
    kept_.release(stream());
    if (captured_calls_) captured_calls_->free_unused();
  }

  Result<std::unique_ptr<LoadedCode>> add(const Variant& variant, BufferTable& table) override {
    TESSERA_ASSIGN(auto code, LoadedExecutable::get(context_, variant.owner));
    LibraryNeeds needs;
    needs.add(*variant.owner);
    start_->begin(context_, needs);
    if (auto attentions = known_attentions(*context_, *variant.owner); !attentions.empty()) {
      plans_are_made_ = true;
      start_->begin(context_, std::move(attentions));
    }
    memory_.add_segments(variant.segment_begin.size() - 1);
    return std::unique_ptr<LoadedCode>(std::make_unique<CudaLoadedCode>(*this, variant, table, std::move(code)));
  }
  Status choose(const Variant& variant, int segment, const Variant::CallState& call, bool wait,
                SegmentPlan& plan) override {
    TESSERA_TRY(choose_steps(*context_, variant, segment, call, plan, wait));
    plans_are_made_ = plans_are_made_ || !plan.improvements.empty();
    return {};
  }
  Status plan(const Variant& variant, LoadedCode& loaded, int segment, const Variant::CallState& call,
              SegmentPlan& plan) override {
    auto& l = static_cast<CudaLoadedCode&>(loaded);
    const bool loads_ahead = account_->limit() == 0; // that takes memory for a moment
    TESSERA_TRY(prepare_steps(
        {context_, recorder_, graph_room_, variant, l.code, l.reports, dependent_launch_, kernels_.get(), loads_ahead},
        segment, call, plan, l.refused));
    plan.step_scratch = rounded_bytes(plan.step_scratch);
    return {};
  }
  Result<int64_t> resident_programs(LoadedCode& loaded, const KernelLaunch& kernel) override {
    const auto& properties = context_->properties();
    if (!properties.cooperative_launch || kernel.shared_bytes > properties.shared_bytes_per_block) return 0;
    TESSERA_ASSIGN(CUfunction function, static_cast<CudaLoadedCode&>(loaded).code->function(kernel));
    int blocks = 0;
    TESSERA_CUDA_TRY(*context_, "kernel '" + kernel.name + "'", cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks,
                     function, kernel.threads, static_cast<size_t>(kernel.shared_bytes));
    return int64_t{blocks} * properties.multiprocessors;
  }
  [[nodiscard]] int64_t alignment() const override { return kBlockAlignment; }
  [[nodiscard]] int workers() const override { return 0; }

  Status around(const std::function<void()>& body) override {
    TESSERA_TRY(context_->usable());
    Context::Current current(*context_);
    TESSERA_TRY(current.status());
    const ProductKernels::Submission submission(*kernels_);
    body();
    return {};
  }

  Result<bool> captures(void* stream) override {
    TESSERA_ASSIGN(capture_, context_->capture_of(static_cast<CUstream>(stream)));
    return capture_.has_value();
  }

  Status begin(const DeviceCall& call) override {
    auto& l = static_cast<CudaLoadedCode&>(call.loaded);
    run_ = {&call.variant,
            &l,
            &call.table,
            &call.stats,
            call.on_device ? static_cast<CUstream>(call.stream) : own_stream_->handle(),
            call.on_device,
            call.captured,
            &call.sizes,
            call.changes};
    times_.clear();
    first_step_ = last_step_ = -1;
    given_.from = call.scratch;
    memory_.begin(call.scratch ? &given_ : nullptr, call.captured);
    inner_.begin(nullptr);
    if (call.captured) {
      TESSERA_CHECK(l.constants && capture_, "a variant that is captured has run before");
      TESSERA_ASSIGN(holding_, captured_calls_->holding(*capture_, run_.stream, this, account_));
      holding_->begin({l.code, l.constants, l.report_memory});
      if (!call.scratch) memory_.begin(holding_.get(), true);
      inner_.begin(call.scratch ? static_cast<CallMemory*>(&given_) : holding_.get());
      return place_inputs(call.inputs);
    }
    captured_calls_->free_unused();
    // Earlier calls used the same memory. A call that waits anyway reports their errors first.
    if (!call.on_device) TESSERA_TRY(pending_.wait());
    TESSERA_TRY(tell_earlier());
    TESSERA_TRY(attributed(pending_.follow(run_.stream)));
    inner_.release(run_.stream);
    if (!l.constants) TESSERA_TRY(first_run(l));
    if (l.reports.stale) { // once nothing runs that may write them
      TESSERA_TRY(pending_.wait());
      l.reports.clear();
    }
    return place_inputs(call.inputs);
  }

  Status enter(int segment, const SegmentPlan& plan) override {
    const auto& steps = static_cast<const CudaPlan&>(*plan.device);
    auto entered = memory_.enter(segment, plan.arena_bytes, plan.step_scratch, steps, run_.stream);
    if (!entered.ok()) return attributed(std::move(entered).take_error());
    std::byte* const arena = *entered;
    if (run_.captured)
      for (const PreparedStep& step : steps.steps)
        if (step.library) holding_->keep(step.library->used_by_graphs());
    for (const auto& place : plan.places)
      if (place.in < 0) pointer(place.buffer) = arena + place.offset;
    return poison(arena, plan.arena_bytes);
  }

  Status place_outputs(int segment, std::span<Tensor> outputs) override {
    auto each = [&](auto&& visit) -> Status {
      for (size_t o = 0; o < outputs.size(); ++o) {
        auto id = run_.variant->exe->outputs[o].buffer;
        if (run_.variant->output_segment[o] == segment && has_bytes(outputs[o].dtype()))
          TESSERA_TRY(visit(id, outputs[o], o >= run_.variant->exe->call_outputs()));
      }
      return {};
    };
    auto given = [&](const Tensor& t, bool state) { return (run_.on_device || state) && is_aligned(t.data()); };
    int64_t total = 0;
    TESSERA_TRY(each([&](BufferId id, const Tensor& t, bool state) -> Status {
      if (!given(t, state)) total += rounded_bytes(run_.bytes(id));
      return {};
    }));
    TESSERA_ASSIGN(auto* at, memory_.outputs(segment, total, run_.stream));
    return each([&](BufferId id, Tensor& t, bool state) -> Status {
      const bool there = given(t, state);
      pointer(id) = there ? t.mutable_data() : at;
      if (!there) at += rounded_bytes(run_.bytes(id));
      return poison(pointer(id), run_.bytes(id));
    });
  }

  Result<bool> replay(const SegmentPlan& segment, bool wait) override {
    const auto& plan = static_cast<const CudaPlan&>(*segment.device);
    if (!plan.replays || !graphs_ || synchronize_launches_ || run_.captured) return false;
    // Everything else that the steps read stays where it is as long as the plan.
    addresses_.assign(run_.table->pointers.begin(), run_.table->pointers.end());
    memory_.append_addresses(addresses_);
    auto started = plan.replays->run(addresses_, run_.stream, segment.submit_ms, wait);
    if (!started.ok()) return attributed(std::move(started).take_error());
    if (!*started) return false;
    if (first_step_ < 0) first_step_ = plan.first_step;
    last_step_ = plan.first_step + static_cast<int>(plan.steps.size()) - 1;
    for (size_t s = 0; s < plan.steps.size(); ++s)
      if (const auto* kernel = plan.steps[s].kernel.kernel)
        run_.loaded->reports.launched[static_cast<size_t>(plan.first_step) + s] = kernel;
    return true;
  }

  Status execute(int index, const StepForm& form, const StepPlan&, DevicePlan* device) override {
    if (first_step_ < 0) first_step_ = index;
    last_step_ = index;
    TESSERA_TRY(put_step(index, *form.step, device));
    if (!synchronize_launches_ || run_.captured) return {};
    first_step_ = last_step_ = -1;
    TESSERA_CUDA_TRY(*this, "step '" + name_of(run_.variant->exe->steps[static_cast<size_t>(index)]) + "'",
                     cuStreamSynchronize, run_.stream);
    return {};
  }

  Status put_step(int index, const Step& form, DevicePlan* device) {
    if (const auto* c = std::get_if<CopyStep>(&form)) {
      if (run_.bytes(c->target) > 0 && pointer(c->target) != pointer(c->source))
        TESSERA_CUDA_TRY(*this, "copy '" + c->name + "'", cuMemcpyDtoDAsync, address(pointer(c->target)),
                         address(pointer(c->source)), static_cast<size_t>(run_.bytes(c->target)), run_.stream);
    } else {
      const auto& plan = static_cast<const CudaPlan&>(*device);
      const auto& step = plan.steps[static_cast<size_t>(index - plan.first_step)];
      const LaunchMemory memory = memory_.of_launches(run_.table->pointers.data(), run_.loaded->reports);
      if (step.library)
        if (auto s = step.library->run(run_.stream, memory.buffers, memory.scratch, run_.captured); !s.ok())
          return attributed(std::move(s).take_error());
      if (step.kernel.grid > 0) TESSERA_TRY(launch(step.kernel, memory, index));
    }
    return {};
  }

  Result<Tensor> fetch(BufferId buffer) override {
    const auto& info = run_.variant->exe->buffers[static_cast<size_t>(buffer)];
    TESSERA_ASSIGN(auto value, Tensor::create(info.dtype, *run_.table->dims[static_cast<size_t>(buffer)]));
    const std::string doing = "copying '" + info.name + "' to the host";
    if (auto s = staging_.download(value.mutable_data(), address(pointer(buffer)), value.bytes(), run_.stream, doing);
        !s.ok())
      return attributed(std::move(s).take_error());
    // No host step works on what a violation left.
    TESSERA_TRY(synchronize(doing));
    TESSERA_TRY(violation(run_.loaded->reports));
    run_.stats->host_bytes += static_cast<int64_t>(value.bytes());
    return value;
  }

  Result<bool> store(BufferId buffer, Tensor& value) override {
    auto id = static_cast<size_t>(buffer);
    const auto& info = run_.variant->exe->buffers[id];
    if (run_.variant->device_reads[id] || info.kind == BufferInfo::Kind::Output) {
      if (auto s = staging_.upload(address(pointer(buffer)), value.data(), value.bytes(), run_.stream,
                                   "copying '" + info.name + "' to the GPU");
          !s.ok())
        return attributed(std::move(s).take_error());
      run_.stats->host_bytes += static_cast<int64_t>(value.bytes());
    }
    // Later host steps take this tensor, unless a step on the GPU changes the buffer.
    return static_cast<bool>(run_.variant->device_writes[id]);
  }

  InnerRuns& inner() override { return inner_; }

  Status mark() override { return times_.mark(run_.stream); }

  Status finish(std::span<Tensor> outputs) override {
    auto& l = *run_.loaded;
    for (size_t o = 0; o < outputs.size(); ++o) {
      auto id = run_.variant->exe->outputs[o].buffer;
      auto& t = outputs[o];
      if (!has_bytes(t.dtype()) || t.bytes() == 0 || pointer(id) == t.data()) continue;
      const std::string doing = "copying output '" + run_.variant->exe->outputs[o].name + "'";
      if (run_.on_device)
        TESSERA_CUDA_TRY(*this, doing, cuMemcpyDtoDAsync, address(t.data()), address(pointer(id)), t.bytes(),
                         run_.stream);
      else if (auto s = staging_.download(t.mutable_data(), address(pointer(id)), t.bytes(), run_.stream, doing);
               !s.ok())
        return attributed(std::move(s).take_error());
    }
    if (run_.stats->host_steps > 0)
      TESSERA_LOGF(LogChannel::Perf, std::to_string(run_.stats->host_steps) + " steps ran on the host, " +
                                         std::to_string(run_.stats->host_bytes) +
                                         " bytes were copied between it and the GPU for them");
    if (run_.captured) {
      TESSERA_TRY(attributed(kept_.change(run_.changes, run_.stream)));
      unread_.note(l.reports, *run_.sizes, true);
      return {};
    }
    if (run_.on_device) {
      TESSERA_TRY(attributed(kept_.change(run_.changes, run_.stream)));
      TESSERA_TRY(leave_pending());
      if (times_.empty()) return staging_.wait(); // nothing is in flight there unless a host step made it
      TESSERA_TRY(times_.mark(run_.stream));
      TESSERA_TRY(synchronize("profiling"));
      return times_.read(host_clock_ms(), run_.stats->steps);
    }
    if (!times_.empty()) TESSERA_TRY(times_.mark(run_.stream));
    TESSERA_TRY(synchronize("waiting for the results"));
    const double ended_ms = host_clock_ms();
    pending_.mark_done();
    TESSERA_TRY(violation(l.reports));
    if (!run_.changes.empty()) {
      TESSERA_TRY(attributed(kept_.change(run_.changes, run_.stream)));
      TESSERA_TRY(leave_pending());
    }
    return times_.read(ended_ms, run_.stats->steps);
  }

  void abandon() override {
    if (run_.captured) return; // what is recorded of it never runs, or is a part of a graph that the caller gives up
    staging_.abandon();
    if (run_.loaded) run_.loaded->reports.stale = true;
    // Steps may still be running: the next run comes after them. If even this fails, it will fail, too.
    (void)leave_pending();
  }

  Status wait() override {
    if (plans_are_made_) wait_for_attention(*context_);
    {
      const ProductKernels::Gap gap(*kernels_);
      kernels_->wait();
    }
    TESSERA_TRY(pending_.wait());
    return tell_earlier();
  }

  KeptMemory& kept() override { return kept_; }
  Status trim() override {
    inner_.release(stream());
    memory_.release(stream());
    captured_calls_->free_unused();
    addresses_.clear();
    return context_->trim(stream());
  }

  // ---- for CudaLoadedCode and errors
  void variant_goes(CudaLoadedCode& l) {
    Context::Current current(*context_);
    quiesce();
    l.report_memory = nullptr;
    unread_.forget(l.reports);
    if (run_.loaded == &l) run_ = {};
  }
  [[nodiscard]] const Driver& driver() const { return context_->driver(); }
  Diagnostic error(CUresult result, const char* function, const std::string& doing = {},
                   std::source_location at = std::source_location::current()) {
    auto d = context_->error(result, function, doing, at);
    return is_sticky(result) ? attributed(std::move(d)) : d;
  }

private:
  CudaDevice(std::shared_ptr<Context> context, const ExecutorOptions& options, std::unique_ptr<LibraryStart> start)
      : started_(options.gpu_libraries), start_(std::move(start)), context_(std::move(context)), pool_(options.pool),
        account_(options.memory), memory_(context_, options.memory), pending_(context_),
        times_(context_, options.profile_submitted), staging_(context_, pool_.get()),
        inner_(
            context_, options.memory, staging_, [this] { return run_.stream; },
            [this](const std::string& doing) -> Status {
              TESSERA_TRY(synchronize(doing));
              return violation(run_.loaded->reports);
            }),
        poison_(options.poison), synchronize_launches_(options.synchronize_launches) {
    synchronize_launches_ = synchronize_launches_ || environment_flag("TESSERA_CUDA_SYNC", false);
    graphs_ = environment_flag("TESSERA_CUDA_GRAPHS", true);
    dependent_launch_ = environment_flag("TESSERA_CUDA_DEPENDENT_LAUNCH", true);
  }

  [[nodiscard]] CUstream stream() const { return own_stream_ ? own_stream_->handle() : nullptr; }
  void*& pointer(BufferId id) { return run_.table->pointers[static_cast<size_t>(id)]; }

  // Nothing of this executor runs on the GPU any more; errors have been reported or never will be.
  void quiesce() {
    (void)pending_.wait();
    pending_.mark_done();
    if (own_stream_) (void)driver().cuStreamSynchronize(own_stream_->handle());
  }

  // The variant's constants and reports.
  Status first_run(CudaLoadedCode& l) {
    if (!l.reports.memory()) {
      void* reports = nullptr;
      TESSERA_CUDA_TRY(*this, "", cuMemHostAlloc, &reports, l.reports.count() * sizeof(IndexReport),
                       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
      l.report_memory =
          std::shared_ptr<IndexReport>(static_cast<IndexReport*>(reports), [context = context_](IndexReport* memory) {
            const Context::Current current(*context);
            (void)context->driver().cuMemFreeHost(memory);
          });
      l.reports.place(l.report_memory.get(), 0);
    }
    CUdeviceptr seen_by_gpu = 0;
    TESSERA_CUDA_TRY(*this, "", cuMemHostGetDevicePointer, &seen_by_gpu, l.reports.memory(), 0);
    l.reports.place(l.reports.memory(), seen_by_gpu);
    TESSERA_ASSIGN(auto constants, DeviceConstants::upload(context_, account_, l.variant, staging_, run_.stream));
    const auto& addresses = constants->addresses();
    for (size_t b = 0; b < addresses.size(); ++b)
      if (addresses[b]) l.table.pointers[b] = addresses[b];
    l.constants = std::move(constants);
    return {};
  }

  Status place_inputs(std::span<const Tensor* const> inputs) {
    auto buffer = [&](size_t i) { return run_.variant->inputs[i].binding->buffer; };
    auto copied = [&](size_t i) {
      if (run_.on_device || i >= run_.variant->exe->call_inputs()) return !is_aligned(inputs[i]->data());
      return static_cast<bool>(run_.variant->device_reads[static_cast<size_t>(buffer(i))]);
    };
    int64_t total = 0;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (copied(i)) total += rounded_bytes(static_cast<int64_t>(inputs[i]->bytes()));
    TESSERA_ASSIGN(auto* at, memory_.inputs(total, run_.stream));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& t = *inputs[i];
      if (!copied(i)) {
        const bool there = run_.on_device || i >= run_.variant->exe->call_inputs();
        pointer(buffer(i)) = there ? const_cast<std::byte*>(t.data()) : nullptr;
        continue;
      }
      pointer(buffer(i)) = at;
      at += rounded_bytes(static_cast<int64_t>(t.bytes()));
      const std::string doing = "copying input '" + run_.variant->inputs[i].binding->name + "'";
      if (!run_.on_device)
        TESSERA_TRY(staging_.upload(address(pointer(buffer(i))), t.data(), t.bytes(), run_.stream, doing));
      else if (t.bytes() > 0)
        TESSERA_CUDA_TRY(*this, doing, cuMemcpyDtoDAsync, address(pointer(buffer(i))), address(t.data()), t.bytes(),
                         run_.stream);
    }
    return {};
  }

  Status poison(void* to, int64_t size) {
    if (!poison_ || size <= 0) return {};
    TESSERA_CUDA_TRY(*this, "", cuMemsetD8Async, address(to), 0xFF, static_cast<size_t>(size), run_.stream);
    return {};
  }

  Status launch(const PreparedLaunch& l, const LaunchMemory& memory, int index) {
    run_.loaded->reports.launched[static_cast<size_t>(index)] = l.kernel;
    auto start = [&]() -> Status {
      const auto started = launcher_.start(driver(), l, memory, run_.stream, times_.empty());
      if (started.result == CUDA_SUCCESS) [[likely]]
        return {};
      return error(started.result, started.function, "launching kernel '" + l.kernel->name + "'");
    };
    return l.alone ? context_->launch_alone(run_.stream, start) : start();
  }

  // Until the stream has got here; downloads are complete then.
  Status synchronize(const std::string& doing) {
    times_.open_gate();
    const ProductKernels::Gap gap(*kernels_);
    TESSERA_CUDA_TRY(*this, doing, cuStreamSynchronize, run_.stream);
    staging_.arrived();
    first_step_ = last_step_ = -1;
    return {};
  }

  // An error that may come from any step since the last wait.
  Diagnostic attributed(Diagnostic d) {
    if (d.code != ErrorCode::DeviceError || first_step_ < 0 || !run_.variant) return d;
    const auto& steps = run_.variant->exe->steps;
    const auto& first = name_of(steps[static_cast<size_t>(first_step_)]);
    const auto& last = name_of(steps[static_cast<size_t>(last_step_)]);
    if (first_step_ == last_step_)
      d.note("since the GPU was last waited for, step '" + first + "' was started");
    else
      d.note("one of the " + std::to_string(last_step_ - first_step_ + 1) + " steps from '" + first + "' to '" + last +
             "' failed, which run on their own; with TESSERA_CUDA_SYNC=1 the error names it");
    return d;
  }

  Status attributed(Status s) {
    if (!s.ok()) return attributed(std::move(s).take_error());
    return s;
  }

  // Work may be in flight on the run's stream when this call returns.
  Status leave_pending() {
    if (!run_.loaded) return {};
    TESSERA_TRY(attributed(pending_.leave(run_.stream)));
    if (run_.on_device) unread_.note(run_.loaded->reports, *run_.sizes, false);
    return {};
  }

  // The first of the bad indices that have been reported, in the run or, `earlier`, in calls on the device. The reports
  // are then cleared.
  Status violation(Reports& reports, bool earlier = false) {
    if (!reports.any()) return {};
    TESSERA_TRY(pending_.wait());
    Diagnostic error =
        earlier ? reports.first_noted().note("in an earlier call on the GPU") : reports.first(*run_.sizes);
    if (earlier) error.code = ErrorCode::EarlierCall;
    reports.clear();
    return error;
  }

  // Violations of earlier calls on the device, and of the caller's graphs, as far as they have come back.
  Status tell_earlier() {
    if (Reports* bad = unread_.bad()) TESSERA_TRY(violation(*bad, true));
    if (!pending_.any()) unread_.arrived();
    return {};
  }

  std::shared_ptr<LibraryStart> started_;
  std::unique_ptr<LibraryStart> start_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<MemoryAccount> account_;
  std::unique_ptr<Stream> own_stream_;
  std::shared_ptr<Recorder> recorder_;
  const std::shared_ptr<GraphRoom> graph_room_ = std::make_shared<GraphRoom>(account_);
  std::shared_ptr<CapturedCalls> captured_calls_;
  std::shared_ptr<LibraryChoices> choices_;
  std::shared_ptr<ProductKernels> kernels_;
  RunMemory memory_;
  Launcher launcher_;
  PendingWork pending_;
  StepTimes times_;
  Staging staging_;
  CudaInnerRuns inner_;
  CudaKeptMemory kept_{context_, account_, staging_, pending_, [this] { return stream(); }};
  GivenMemory given_;
  std::optional<Context::Capture> capture_;         // of the present call's stream
  std::shared_ptr<CapturedCalls::Holding> holding_; // of the last call that was captured
  bool poison_, synchronize_launches_;
  bool graphs_ = true;           // replay what repeats
  bool dependent_launch_ = true; // where it is possible
  std::vector<void*> addresses_; // of a replay
  bool plans_are_made_ = false;  // in the background, for some shape
  UnreadReports unread_;

  struct Run {
    const Variant* variant = nullptr;
    CudaLoadedCode* loaded = nullptr;
    BufferTable* table = nullptr;
    RunStats* stats = nullptr;
    CUstream stream = nullptr;
    bool on_device = false, captured = false;
    const Variant::CallState* sizes = nullptr;
    std::span<StateValue> changes;
    [[nodiscard]] int64_t bytes(BufferId id) const { return table->bytes[static_cast<size_t>(id)]; }
  };
  Run run_;
  int first_step_ = -1, last_step_ = -1; // started since the GPU was last waited for
};

CudaLoadedCode::~CudaLoadedCode() { device.variant_goes(*this); }

} // namespace
} // namespace tessera::cuda

namespace tessera {

Result<std::unique_ptr<Device>> make_cuda_device(std::span<const std::shared_ptr<const Executable>> executables,
                                                 const ExecutorOptions& options) {
  return cuda::CudaDevice::create(executables, options);
}

} // namespace tessera
