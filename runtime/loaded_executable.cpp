#include "runtime/loaded_executable.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "runtime/memory_account.h"
#include <atomic>
#include <cstring>
#include <tuple>

namespace tessera {

Result<std::unique_ptr<LoadedExecutable>> LoadedExecutable::create(std::shared_ptr<const Executable> executable,
                                                                   Device& device, const ExecutorOptions& options) {
  std::unique_ptr<LoadedExecutable> l(new LoadedExecutable(device, options));
  TESSERA_ASSIGN(l->variant_, Variant::create(std::move(executable)));
  l->variant_->prepare(l->call);
  auto buffers = l->variant_->exe->buffers.size();
  l->table_.pointers.resize(buffers);
  l->table_.dims.resize(buffers);
  l->table_.bytes.resize(buffers);
  l->held_.resize(buffers);
  l->is_held_.resize(buffers);
  l->spare_outputs_.resize(l->variant_->exe->outputs.size());
  l->requested_.resize(l->variant_->exe->outputs.size());
  if (options.profile) l->step_ids_ = step_ids(*l->variant_->exe);
  for (const auto& constant : l->variant_->exe->constants)
    if (auto file = MappedFile::at(constant.value.data());
        file && std::find(l->files_.begin(), l->files_.end(), file) == l->files_.end())
      l->files_.push_back(std::move(file));
  TESSERA_ASSIGN(l->loaded_, device.add(*l->variant_, l->table_));
  TESSERA_TRY(l->unchanged_files());
  return l;
}

Status LoadedExecutable::unchanged_files() const {
  for (const auto& file : files_) TESSERA_TRY(file->unchanged());
  return {};
}

std::optional<Refusal> LoadedExecutable::refusal(std::span<const Tensor* const> inputs,
                                                 std::vector<HostPhase>* phases) {
  {
    const PhaseTimer timer(phases, "bind");
    if (Status bound = variant_->bind(inputs, call); !bound.ok())
      return Refusal{.known = std::move(bound).take_error()};
  }
  const PhaseTimer timer(phases, "guards");
  const int guard = variant_->guards.check(call.values, call.bound, call.guards);
  if (guard < 0) return std::nullopt;
  return refused_by(guard);
}

Refusal LoadedExecutable::refused_by(int guard) const {
  Refusal refused{.variant = this, .guard = guard};
  if (!variant_->guards.required(guard)) refused.miss = variant_->guards.explain(guard, call.values, call.bound);
  return refused;
}

Diagnostic Refusal::error() const {
  if (known) return *known;
  const Variant& v = variant->variant();
  const GuardMiss why = miss ? *miss : v.guards.explain(guard, variant->call.values, variant->call.bound);
  Diagnostic error(ErrorCode::GuardFailed,
                   "the inputs do not satisfy " + why.guard + " (" + why.reason + "): " + sizes_text(why.sizes));
  for (const SymExpr& symbol : v.guards.guard(guard).condition.symbols()) {
    std::string places;
    for (const auto& input : v.exe->inputs) {
      const auto& shape = v.exe->buffers[static_cast<size_t>(input.buffer)].shape;
      for (size_t d = 0; d < shape.size(); ++d)
        if (shape[d] == symbol)
          places += (places.empty() ? " is dimension " : ", dimension ") + std::to_string(d) + " of input '" +
                    input.name + "'";
    }
    if (!places.empty()) error.note(symbol.symbol_name() + places);
  }
  if (!why.where.empty()) error.note("needed by " + why.where);
  return error;
}

LoadedExecutable::Outcome LoadedExecutable::run(const CallArguments& arguments, RunStats& stats) {
  stats_ = &stats;
  on_device_ = arguments.on_device;
  profile_ = arguments.profile && !arguments.captured;
  begun_ = false;
  captured_ = arguments.captured;
  if (!arguments.again) std::fill(requested_.begin(), requested_.end(), std::nullopt);
  stats.steps.clear(); // of a variant that was given up
  arena_bytes_ = 0;
  std::optional<int> missed;
  Status status = guarded("running the model", [&] { return steps(arguments, missed); });
  if (status.ok() && !missed && loaded_->constants_in_place) status = unchanged_files();
  stats.arena_bytes = arena_bytes_;
  if (status.ok() && !missed) return std::move(given_);
  if (begun_) device_.abandon();
  given_.clear();
  return missed ? refused_by(*missed) : refused(std::move(status));
}

// A body's miss and calls that the libraries refuse are misses of this variant, too.
Refusal LoadedExecutable::refused(Status status) {
  Refusal out{.known = std::move(status).take_error()};
  out.miss = std::exchange(body_miss_, std::nullopt);
  if (auto calls = std::exchange(loaded_->refused, {});
      !out.miss && !calls.empty() && out.known->code != ErrorCode::OutOfMemory)
    out.miss = GuardMiss{.guard = {},
                         .reason = out.known->message,
                         .where = {},
                         .sizes = {},
                         .refused_in = variant_->owner,
                         .refused = std::move(calls)};
  for (size_t i = 0; out.miss && i < variant_->slots.size(); ++i)
    if (call.bound[i]) out.miss->sizes.emplace(variant_->slots[i].symbol_name(), call.values[i]);
  return out;
}

Result<std::vector<DeviceTensor>> LoadedExecutable::output_sizes() {
  std::vector<DeviceTensor> sizes;
  evaluate_sizes(*variant_, call);
  const std::span outputs(variant_->exe->outputs);
  for (const auto& output : outputs.first(variant_->exe->call_outputs())) {
    if (variant_->buffer_segment[static_cast<size_t>(output.buffer)] > 0)
      return Diagnostic(ErrorCode::UnsupportedFeature,
                        "the sizes of output '" + output.name + "' depend on values and are known after the run only");
    TESSERA_ASSIGN(auto dims, dims_of(*variant_, call, output.buffer));
    sizes.push_back({variant_->exe->buffers[static_cast<size_t>(output.buffer)].dtype, std::move(dims), nullptr});
  }
  return sizes;
}

void LoadedExecutable::let_go() {
  given_.clear();
  if (!std::exchange(holding_, false)) return;
  for (auto& t : held_) t = Tensor();
  std::fill(is_held_.begin(), is_held_.end(), false);
  host_results_.clear();
}

void LoadedExecutable::trim() {
  let_go();
  plans_.clear();
  controls_.clear();
  for (auto& spare : spare_outputs_) spare = {};
}

// A captured call needs a plan, since making one loads kernels and queries libraries, and steps that need no host.
Status LoadedExecutable::check_captured() {
  for (const Step& step : variant_->exe->steps) {
    const auto* control = std::get_if<ControlStep>(&step);
    const auto* copy = std::get_if<CopyStep>(&step);
    const bool on_host = std::holds_alternative<HostStep>(step) ||
                         (copy && !has_bytes(variant_->exe->buffers[static_cast<size_t>(copy->source)].dtype));
    if (!on_host && !(control && !decided_by_sizes(*control))) continue;
    return Diagnostic(ErrorCode::UnsupportedFeature, "'" + name_of(step) + "' " +
                                                         (control ? "is decided by a value" : "runs on the host") +
                                                         ", so that no CUDA graph can have the call in it");
  }
  if (plans_.find(0, call)) return {};
  return Diagnostic(ErrorCode::Usage,
                    "a call with these sizes is captured before there was one: its kernels are not loaded")
      .note("call it once before capturing, with inputs of the same sizes");
}

// `missed`: a guard over sizes that a step has defined, which ends the run.
Status LoadedExecutable::steps(const CallArguments& arguments, std::optional<int>& missed) {
  const auto& v = *variant_;
  const auto& exe = *v.exe;
  if (arguments.outputs && arguments.outputs->size() != exe.call_outputs())
    return Diagnostic(ErrorCode::BadInput, std::to_string(arguments.outputs->size()) +
                                               " output tensors were given, the model has " +
                                               std::to_string(exe.call_outputs()));
  if (arguments.states.size() != exe.states.size())
    return Diagnostic(ErrorCode::Internal, "the executor has other states than the variant");
  let_go();
  decide_lending(arguments);
  if (arguments.captured) TESSERA_TRY(check_captured());
  if (arguments.outputs) TESSERA_TRY(check_overlaps(*arguments.outputs));
  {
    const PhaseTimer timer(phases(), "inputs");
    begun_ = true;
    TESSERA_TRY(device_.begin({v, *loaded_, table_, call.tensors, arguments.on_device, arguments.stream, *stats_, call,
                               arguments.captured, arguments.scratch,
                               arguments.changes_states ? arguments.states : std::span<StateValue>()}));
  }
  given_.assign(exe.outputs.size(), Tensor());
  entered_.clear();
  const Stopwatch watch;
  int segments = static_cast<int>(v.segment_begin.size()) - 1;
  for (int s = 0; s < segments; ++s) {
    std::optional<PhaseTimer> timer(std::in_place, phases(), "plan");
    TESSERA_ASSIGN(SegmentPlan * entered, enter(s, arguments));
    timer.reset();
    SegmentPlan& plan = *entered;
    entered_.push_back(&plan);
    if (s > 0) TESSERA_TRY(store_results(v.segment_begin[static_cast<size_t>(s)] - 1));
    int begin = v.segment_begin[static_cast<size_t>(s)], end = v.segment_begin[static_cast<size_t>(s) + 1];
    bool started = false;
    if (plan.overwrites_inputs) arguments.donated->overwritten = true;
    if (!profile_ && !options_.ranges) {
      TESSERA_ASSIGN(started, device_.replay(plan, arguments.wait_for_plans));
    }
    const Stopwatch submitting;
    for (int k = started ? end : begin; k < end; ++k) {
      const auto& form = v.steps[static_cast<size_t>(k)];
      const auto& step = plan.steps[static_cast<size_t>(k - begin)];
      if (plan.leaves_out(static_cast<size_t>(k - begin))) continue;
      const NamedRange range(options_.ranges.get(), name_of(*form.step));
      TESSERA_TRY(profile_ ? profiled(form, step, plan, k) : execute(form, step, plan, k));
    }
    if (!started) plan.submit_ms += submitting.ms();
    if (s + 1 < segments) {
      TESSERA_TRY(define(v.segment_begin[static_cast<size_t>(s) + 1] - 1, s + 1));
      if (int g = v.guards.check(call.values, call.bound, call.guards); g >= 0) {
        missed = g;
        return {};
      }
    }
  }
  if (profile_) count_bytes();
  const PhaseTimer timer(phases(), "results");
  std::vector<Tensor> own; // until what is in them is copied
  for (size_t o = 0; o < exe.call_outputs(); ++o)
    if (defers_output(o, arguments)) {
      own.push_back(given_[o]);
      TESSERA_TRY(request_output(o, *arguments.allocator));
    }
  if (!own.empty()) TESSERA_TRY(check_overlaps(given_));
  TESSERA_TRY(device_.finish(given_));
  given_.resize(exe.call_outputs());
  const double took = watch.ms();
  for (SegmentPlan* plan : entered_) {
    plan->spent_ms += took;
    plan->calls_on_device += arguments.on_device ? 1 : 0;
  }
  return arguments.on_device ? Status() : of_this_call(wait());
}

// A body's earlier call is a part of this one, which waits for it.
Status LoadedExecutable::of_this_call(Status status) const {
  if (status.ok() || on_device_ || status.error().code != ErrorCode::EarlierCall) return status;
  Diagnostic error = std::move(status).take_error();
  error.code = ErrorCode::BadInput;
  return error;
}

// The memory that a run writes overlaps none that it reads or writes otherwise. Outputs without a tensor yet are passed
// over.
Status LoadedExecutable::check_overlaps(std::span<const Tensor> outputs) {
  const auto& exe = *variant_->exe;
  const auto range = [](const Tensor& t, const Binding& binding) {
    const auto begin = reinterpret_cast<uintptr_t>(t.data());
    return Range{begin, begin + (has_bytes(t.dtype()) ? t.bytes() : 0), &binding};
  };
  const auto overlap = [](const Range& output, const char* kind, const Range& other) {
    return Diagnostic(ErrorCode::BadInput, "the memory given for output '" + output.binding->name +
                                               "' overlaps that of " + kind + " '" + other.binding->name + "'")
        .note("give each output memory of its own");
  };
  written_.clear();
  for (size_t o = 0; o < exe.call_outputs(); ++o)
    if (outputs[o].defined() && has_bytes(outputs[o].dtype()) && outputs[o].bytes() > 0)
      written_.push_back(range(outputs[o], exe.outputs[o]));
  std::sort(written_.begin(), written_.end(),
            [](const Range& a, const Range& b) { return std::tie(a.begin, a.binding) < std::tie(b.begin, b.binding); });
  for (size_t w = 1; w < written_.size(); ++w)
    if (written_[w].begin < written_[w - 1].end) return overlap(written_[w], "output", written_[w - 1]);
  for (size_t i = 0; i < exe.call_inputs(); ++i) {
    const Range in = range(*call.tensors[i], exe.inputs[i]);
    if (in.begin == in.end) continue;
    // The first output that ends behind the input's beginning; outputs are disjoint.
    const auto out = std::upper_bound(written_.begin(), written_.end(), in.begin,
                                      [](uintptr_t at, const Range& output) { return at < output.end; });
    if (out != written_.end() && out->begin < in.end) return overlap(*out, "input", in);
  }
  return {};
}

// Begins what pays by now. True: the plan is to be made again.
bool LoadedExecutable::improve(SegmentPlan& plan, bool wait) const {
  // A call on the device returns before its work is done, so what it takes is not known: sizes that came so often come
  // again.
  constexpr int kOften = 16;
  bool again = wait;
  for (auto& improvement : plan.improvements) {
    if (!wait) improvement.begin_where_it_pays(plan.spent_ms, plan.calls_on_device >= kOften);
    again = again || improvement.outdated();
  }
  return again;
}

void LoadedExecutable::decide_lending(const CallArguments& arguments) {
  call.lends_outputs =
      arguments.donated && !arguments.donated->flags.empty() && arguments.allocator && variant_->may_lend();
  call.donated.clear();
  if (!call.lends_outputs) return;
  call.donated.assign(arguments.donated->flags.begin(), arguments.donated->flags.end());
  call.donated.resize(call.tensors.size());
  for (size_t i = 0; i < call.donated.size(); ++i)
    if (reinterpret_cast<uintptr_t>(call.tensors[i]->data()) % static_cast<uintptr_t>(device_.alignment()) != 0)
      call.donated[i] = 0;
}

// Temporaries that lie in memory of inputs and outputs. False: an output is not aligned.
bool LoadedExecutable::place_lent(const SegmentPlan& plan) {
  for (const auto& place : plan.places) {
    if (place.in < 0) continue;
    auto* lent = static_cast<std::byte*>(table_.pointers[static_cast<size_t>(place.in)]);
    if (reinterpret_cast<uintptr_t>(lent) % static_cast<uintptr_t>(device_.alignment()) != 0) return false;
    table_.pointers[static_cast<size_t>(place.buffer)] = lent + place.offset;
  }
  return true;
}

// The plan for what is bound, made when its sizes are new.
Result<SegmentPlan*> LoadedExecutable::plan_for(int segment, const CallArguments& arguments) {
  const auto& v = *variant_;
  SegmentPlan* plan = plans_.find(segment, call);
  if (arguments.captured) {
    if (plan->captured) plan = plan->captured.get();
  } else if (plan && !plan->improvements.empty() && improve(*plan, arguments.wait_for_plans)) {
    plans_.drop(plan);
    plan = nullptr;
    ++stats_->replans;
  }
  if (!plan) {
    const Stopwatch watch;
    auto made = plan_segment(v, segment, call, device_, *loaded_, arguments.wait_for_plans);
    // At the limit, plans of other shapes go first.
    while (!made.ok() && made.error().code == ErrorCode::OutOfMemory && options_.memory->limit() != 0 &&
           plans_.forget_oldest())
      made = plan_segment(v, segment, call, device_, *loaded_, arguments.wait_for_plans);
    if (!made.ok()) return std::move(made).take_error();
    TESSERA_ASSIGN(plan, plans_.insert(segment, std::move(*made)));
    stats_->new_shape = true;
    stats_->plan_ms += watch.ms();
    TESSERA_LOGF(LogChannel::Memory, "new shape: arena " + std::to_string(plan->arena_bytes) + " bytes, scratch " +
                                         std::to_string(plan->step_scratch + plan->worker_scratch * device_.workers()) +
                                         " bytes, packed weights " + std::to_string(plan->packed_bytes) + " bytes");
  }
  return plan;
}

// Plans the segment when its sizes are new; places its temporaries and outputs.
Result<SegmentPlan*> LoadedExecutable::enter(int segment, const CallArguments& arguments) {
  const auto& v = *variant_;
  TESSERA_ASSIGN(SegmentPlan * plan, plan_for(segment, arguments));
  arena_bytes_ += plan->arena_bytes + plan->step_scratch;
  if (options_.memory->limit() != 0 && !arguments.scratch) {
    int64_t outputs = 0; // that are allocated here
    if (!arguments.outputs)
      for (size_t o = 0; o < v.exe->call_outputs(); ++o)
        if (const auto id = static_cast<size_t>(v.exe->outputs[o].buffer);
            v.output_segment[o] <= segment && has_bytes(v.exe->buffers[id].dtype) &&
            (!arguments.allocator || defers_output(o, arguments)))
          outputs += plan->bytes[id];
    TESSERA_TRY(options_.memory->check_call(arena_bytes_ + plan->worker_scratch * device_.workers(), outputs));
  }
  const std::span segment_of(v.buffer_segment), shape_of(v.buffer_shape);
  const std::span<const Dims> shapes(plan->shapes);
  const std::span<const int64_t> bytes(plan->bytes);
  const std::span table_dims(table_.dims);
  const std::span table_bytes(table_.bytes);
  for (size_t b = 0; b < segment_of.size(); ++b)
    if (segment_of[b] <= segment) {
      table_dims[b] = &shapes[static_cast<size_t>(shape_of[b])];
      table_bytes[b] = bytes[b];
    }
  TESSERA_TRY(device_.enter(segment, *plan));
  bool requested = false;
  for (size_t o = 0; o < v.exe->outputs.size(); ++o) {
    if (v.output_segment[o] != segment) continue;
    TESSERA_TRY(make_output(o, arguments));
    requested = requested || (arguments.allocator && !defers_output(o, arguments));
  }
  if (requested && !arguments.of_body) TESSERA_TRY(check_overlaps(given_));
  TESSERA_TRY(device_.place_outputs(segment, given_));
  if (place_lent(*plan)) return plan;
  call.lends_outputs = false;
  call.donated.clear();
  TESSERA_ASSIGN(plan, plan_for(segment, arguments));
  TESSERA_TRY(device_.enter(segment, *plan));
  return plan;
}

// The tensor that will hold an output: the caller's, one given out before that nobody has any more, or a new one.
Status LoadedExecutable::make_output(size_t o, const CallArguments& arguments) {
  const auto& binding = variant_->exe->outputs[o];
  auto id = static_cast<size_t>(binding.buffer);
  const auto& info = variant_->exe->buffers[id];
  const Dims& dims = *table_.dims[id];
  if (const size_t first = variant_->exe->call_outputs(); o >= first) {
    given_[o] = arguments.states[o - first].next;
    return {};
  }
  if (arguments.outputs) {
    auto& t = (*arguments.outputs)[o];
    if (!t.defined() || t.dtype() != info.dtype || t.dims() != dims)
      return Diagnostic(ErrorCode::BadInput, "the tensor given for output '" + binding.name +
                                                 "' does not have the type and sizes of the result, " +
                                                 std::string(name(info.dtype)) + str(info.shape));
    given_[o] = t;
    return {};
  }
  if (!has_bytes(info.dtype) && arguments.allocator)
    return Diagnostic(ErrorCode::UnsupportedType, "output '" + binding.name + "' holds " +
                                                      std::string(name(info.dtype)) + "s, which are no memory");
  if (!has_bytes(info.dtype)) { // the step that makes it replaces it
    TESSERA_ASSIGN(given_[o], Tensor::create(info.dtype, {0}));
    return {};
  }
  return arguments.allocator && !defers_output(o, arguments) ? request_output(o, *arguments.allocator) : own_output(o);
}

// Whether the output lies in memory of the executor until its sizes are final. A call that is captured came before with
// these sizes, and nothing in it depends on values.
bool LoadedExecutable::defers_output(size_t o, const CallArguments& arguments) const {
  return arguments.allocator && !arguments.captured && !arguments.of_body && variant_->output_may_change[o];
}

// In memory that is requested of the caller.
Status LoadedExecutable::request_output(size_t o, const OutputAllocator& allocator) {
  const auto& binding = variant_->exe->outputs[o];
  const auto id = static_cast<size_t>(binding.buffer);
  const DType dtype = variant_->exe->buffers[id].dtype;
  const auto bytes = static_cast<size_t>(table_.bytes[id]);
  if (!requested_[o]) {
    TESSERA_ASSIGN(requested_[o], allocator(o, dtype, *table_.dims[id]));
  }
  void* const memory = *requested_[o];
  if (memory == nullptr && bytes > 0)
    return Diagnostic(ErrorCode::OutOfMemory, "the caller has no memory for output '" + binding.name + "' of " +
                                                  std::to_string(bytes) + " bytes");
  const auto alignment = static_cast<uintptr_t>(std::clamp(info(dtype).bits / 8, 1, 8));
  if (bytes > 0 && reinterpret_cast<uintptr_t>(memory) % alignment != 0)
    return Diagnostic(ErrorCode::Usage, "output '" + binding.name + "' was given memory at an address that is no " +
                                            "multiple of " + std::to_string(alignment) + ", the size of its elements");
  static std::byte nothing{};
  const auto* data = memory ? static_cast<const std::byte*>(memory) : &nothing;
  given_[o] = Tensor::view(dtype, *table_.dims[id], Storage{nullptr, data, bytes});
  return {};
}

// In memory of the executor's own, on the device where the call's inputs lie.
Status LoadedExecutable::own_output(size_t o) {
  const auto& binding = variant_->exe->outputs[o];
  const auto id = static_cast<size_t>(binding.buffer);
  const auto& info = variant_->exe->buffers[id];
  const Dims& dims = *table_.dims[id];
  const auto bytes = static_cast<size_t>(table_.bytes[id]);
  auto& [spare, room] = spare_outputs_[o];
  constexpr size_t kWorthKeeping = 64 << 10; // below, the allocator is as good
  if (spare && spare.use_count() == 1 && room >= bytes && room <= bytes * 2) {
    // The count is read without order. Letting go of a copy of our own acquires what the last reader released by
    // letting go of its (a fence would do; the thread sanitizer knows none).
    { auto copy = spare; }
    given_[o] = Tensor::view(info.dtype, dims, Storage{spare, spare.get(), room});
    return {};
  }
  if (spare.use_count() == 1) spare.reset(); // its room first
  auto allocated =
      on_device_ ? device_.inner().allocate(static_cast<int64_t>(bytes)) : options_.memory->allocate(bytes, "outputs");
  if (!allocated.ok())
    return Diagnostic(allocated.error().code, allocated.error().message + " for output '" + binding.name + "'");
  auto block = std::move(*allocated);
  given_[o] = Tensor::view(info.dtype, dims, Storage{block, block.get(), bytes});
  if (bytes >= kWorthKeeping && options_.memory->limit() == 0) {
    spare = std::move(block);
    room = bytes;
  }
  return {};
}

Status LoadedExecutable::execute(const StepForm& form, const StepPlan& step, SegmentPlan& plan, int index) {
  if (const auto* h = std::get_if<HostStep>(form.step)) return host(*h, index);
  if (std::holds_alternative<ControlStep>(*form.step)) return control(step, plan, index);
  if (const auto* c = std::get_if<CopyStep>(form.step)) {
    auto from = static_cast<size_t>(c->source), to = static_cast<size_t>(c->target);
    if (!has_bytes(variant_->exe->buffers[from].dtype)) return copy_strings(*c);
    if (table_.bytes[from] != table_.bytes[to])
      return Diagnostic(ErrorCode::Internal, "copy '" + c->name + "': sizes differ");
  }
  return device_.execute(index, form, step, plan.device.get());
}

Status LoadedExecutable::profiled(const StepForm& form, const StepPlan& step, SegmentPlan& plan, int index) {
  StepProfile p;
  p.name = step_ids_[static_cast<size_t>(index)];
  p.step = index;
  p.on_host = std::holds_alternative<HostStep>(*form.step) || std::holds_alternative<ControlStep>(*form.step);
  if (step.kernel) {
    p.kernel = step.kernel->symbol;
    p.blocks = step.launch.grid;
    p.threads = step.kernel->threads;
  }
  p.submit_begin_ms = host_clock_ms(); // before the device can begin
  TESSERA_TRY(device_.mark());
  TESSERA_TRY(execute(form, step, plan, index));
  p.submit_ms = host_clock_ms() - p.submit_begin_ms;
  TESSERA_TRY(device_.mark());
  stats_->steps.push_back(std::move(p));
  return {};
}

// Sets the bytes of the profile's steps, now that every size is known.
void LoadedExecutable::count_bytes() {
  evaluate_sizes(*variant_, call);
  for (StepProfile& p : stats_->steps) {
    const auto r = static_cast<size_t>(variant_->steps[static_cast<size_t>(p.step)].bytes);
    if (call.sizes.fault[r] == SymFault::None) p.bytes = call.sizes.value[r];
  }
}

Status LoadedExecutable::copy_strings(const CopyStep& copy) {
  TESSERA_ASSIGN(auto strings, value(copy.source));
  hold(static_cast<size_t>(copy.target), std::move(strings));
  give_held(copy.target);
  return {};
}

// ---- host steps
// A buffer as a tensor on the host: an input, a constant, what is held, or what the device has.
Result<Tensor> LoadedExecutable::value(BufferId buffer) {
  auto id = static_cast<size_t>(buffer);
  const auto& info = variant_->exe->buffers[id];
  if (info.kind == BufferInfo::Kind::Constant)
    return variant_->exe->constants[static_cast<size_t>(info.constant)].value;
  if (info.kind == BufferInfo::Kind::Input && !on_device_)
    for (size_t i = 0; i < variant_->exe->call_inputs(); ++i)
      if (variant_->inputs[i].binding->buffer == buffer) return *call.tensors[i];
  if (is_held_[id]) return held_[id];
  return device_.fetch(buffer);
}

namespace {
// The list with items of its own memory in the place of operands, whose memory is the run's.
Result<Tensor> kept(const Tensor& list, const std::vector<Tensor>& operands) {
  std::vector<Tensor> items = list.items();
  for (Tensor& item : items) {
    auto is = [&](const Tensor& o) { return o.defined() && has_bytes(o.dtype()) && o.data() == item.data(); };
    if (!has_bytes(item.dtype()) || item.bytes() == 0 || std::none_of(operands.begin(), operands.end(), is)) continue;
    TESSERA_ASSIGN(Tensor copy, Tensor::create(item.dtype(), item.dims()));
    std::memcpy(copy.mutable_data(), item.data(), item.bytes());
    item = std::move(copy);
  }
  return Tensor::list(std::move(items));
}
} // namespace

Status LoadedExecutable::host(const HostStep& step, int index) {
  ++stats_->host_steps;
  std::vector<Tensor> operands;
  for (auto b : step.inputs) {
    if (b < 0) {
      operands.emplace_back();
      continue;
    }
    TESSERA_ASSIGN(auto operand, value(b));
    operands.push_back(std::move(operand));
  }
  auto results = guarded({"host step", step.name},
                         [&] { return step.run(operands, variant_->symbol_values(call.values, call.bound)); });
  if (!results.ok()) {
    Location where;
    where.node = step.name;
    return std::move(results).take_error().at(std::move(where));
  }
  if (results->size() < step.outputs.size())
    return Diagnostic(ErrorCode::Internal, "host step '" + step.name + "' (" + step.op + ") returned " +
                                               std::to_string(results->size()) + " of " +
                                               std::to_string(step.outputs.size()) + " results");
  host_results_ = std::move(*results);
  for (Tensor& t : host_results_)
    if (t.dtype() == DType::List) {
      TESSERA_ASSIGN(t, kept(t, operands));
    }
  holding_ = true;
  return step.defines.empty() ? store_results(index) : Status();
}

Status LoadedExecutable::control(const StepPlan& step, const SegmentPlan& plan, int index) {
  auto& run = controls_[index];
  if (!run) {
    TESSERA_ASSIGN(run, ControlRun::create(*variant_, index, device_, table_, options_));
  }
  const auto& numbers = variant_->steps[static_cast<size_t>(index)].control;
  Status done = run->run(std::span(plan.numbers).subspan(numbers.empty() ? 0 : step.numbers, numbers.size()),
                         variant_->symbol_values(call.values, call.bound), *stats_, captured_);
  if (!done.ok()) body_miss_ = run->take_miss();
  return of_this_call(std::move(done));
}

Status LoadedExecutable::wait() {
  for (auto& [index, run] : controls_)
    if (run) TESSERA_TRY(run->wait());
  return {};
}

// Binds the sizes that the step of `index` defines.
Status LoadedExecutable::define(int index, int segment) {
  const auto& v = *variant_;
  auto bind = [&](const SymExpr& symbol, int64_t value) {
    for (size_t i = 0; i < v.slots.size(); ++i)
      if (v.slots[i] == symbol && v.slot_segment[i] == segment) {
        call.values[i] = value;
        call.bound[i] = true;
      }
  };
  if (const auto* c = std::get_if<ControlStep>(&v.exe->steps[static_cast<size_t>(index)])) {
    for (const auto& d : c->defines) {
      const Dims& dims = controls_.at(index)->dims(static_cast<size_t>(d.result));
      if (static_cast<size_t>(d.dim) >= dims.size())
        return Diagnostic(ErrorCode::Internal,
                          "'" + c->name + "' (" + c->op + ") yields a result of rank " + std::to_string(dims.size()));
      bind(d.symbol, dims[static_cast<size_t>(d.dim)]);
    }
    return {};
  }
  const auto& step = std::get<HostStep>(v.exe->steps[static_cast<size_t>(index)]);
  for (const auto& d : step.defines) {
    const Tensor& result = host_results_[static_cast<size_t>(d.result)];
    const auto& dims = result.dims();
    if (d.dim >= static_cast<int>(dims.size()))
      return Diagnostic(ErrorCode::Internal, "host step '" + step.name + "' (" + step.op +
                                                 ") returned a result of rank " + std::to_string(dims.size()));
    const bool integers = is_integer(result.dtype()) || result.dtype() == DType::Bool;
    if (d.element >= 0 && (d.element >= result.count() || !integers))
      return Diagnostic(ErrorCode::Internal, "host step '" + step.name + "' (" + step.op + ") returned no integer " +
                                                 std::to_string(d.element));
    bind(d.symbol,
         d.dim >= 0 ? dims[static_cast<size_t>(d.dim)] : std::clamp(result.get_i64(d.element), -kReadMax, kReadMax));
  }
  return {};
}

Status LoadedExecutable::store_results(int index) {
  const auto& exe = *variant_->exe;
  if (std::holds_alternative<ControlStep>(exe.steps[static_cast<size_t>(index)])) return controls_.at(index)->place();
  const auto& step = std::get<HostStep>(exe.steps[static_cast<size_t>(index)]);
  for (size_t r = 0; r < step.outputs.size(); ++r) {
    if (step.outputs[r] < 0) continue;
    auto id = static_cast<size_t>(step.outputs[r]);
    auto& t = host_results_[r];
    const auto& info = exe.buffers[id];
    if (!t.defined() || t.dtype() != info.dtype || t.dims() != *table_.dims[id]) {
      std::string got(name(t.dtype()));
      for (auto d : t.dims()) got += " " + std::to_string(d);
      return Diagnostic(ErrorCode::Internal, "host step '" + step.name + "' (" + step.op + ") returned " + got +
                                                 " where " + std::string(name(info.dtype)) + str(info.shape) +
                                                 " was inferred");
    }
    if (!has_bytes(info.dtype)) {
      hold(id, t);
      if (info.kind == BufferInfo::Kind::Output) give_held(step.outputs[r]);
      continue;
    }
    TESSERA_ASSIGN(bool device_has_it, device_.store(step.outputs[r], t));
    if (!device_has_it) hold(id, t);
  }
  host_results_.clear();
  return {};
}

void LoadedExecutable::hold(size_t id, Tensor t) {
  held_[id] = std::move(t);
  is_held_[id] = holding_ = true;
}

void LoadedExecutable::give_held(BufferId buffer) {
  const auto& outputs = variant_->exe->outputs;
  for (size_t o = 0; o < outputs.size(); ++o)
    if (outputs[o].buffer == buffer) given_[o] = held_[static_cast<size_t>(buffer)];
}

} // namespace tessera
