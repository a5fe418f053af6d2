#include "runtime/shape_plan.h"
#include "base/log.h"
#include "runtime/device.h"
#include "runtime/empty_tensor_map.h"
#include <algorithm>
#include <set>

namespace tessera {

SegmentPlan::SegmentPlan() = default;
SegmentPlan::~SegmentPlan() = default;

namespace {

constexpr int64_t kMaxScratch = int64_t{1} << 40;

std::string sizes_text(const Variant& v, const Variant::CallState& call) {
  std::map<std::string, int64_t> sizes;
  for (size_t i = 0; i < v.slots.size(); ++i)
    if (call.bound[i]) sizes.emplace(v.slots[i].symbol_name(), call.values[i]);
  return sizes.empty() ? "constant sizes" : tessera::sizes_text(sizes);
}

[[gnu::noinline, gnu::cold]] Diagnostic no_number(const Variant& v, const Variant::CallState& call, SymFault fault,
                                                  const char* before, const std::string& name) {
  return Diagnostic(fault == SymFault::Overflow ? ErrorCode::SizeOverflow : ErrorCode::BadInput,
                    before + ("'" + name + "' ") + std::string(describe(fault)) + " for " + sizes_text(v, call));
}

// A number of the plan being made. Its error calls it `before`, then the name in quotes.
[[gnu::always_inline]] inline Result<int64_t> number(const Variant& v, const Variant::CallState& call, int reg,
                                                     const char* before, const std::string& name) {
  auto r = static_cast<size_t>(reg);
  if (call.sizes.fault[r] == SymFault::None) [[likely]]
    return call.sizes.value[r];
  return no_number(v, call, call.sizes.fault[r], before, name);
}

// A condition on a size that cannot be evaluated does not hold: the kernel that takes every size is launched, and says
// what is wrong if it cannot be either.
bool holds(const KernelForm& form, const SymProgram::State& state) {
  return std::all_of(form.conditions.begin(), form.conditions.end(), [&](const SizeConditionOf<int>& c) {
    auto r = static_cast<size_t>(c.value);
    return state.fault[r] == SymFault::None && c.allows(state.value[r]);
  });
}

// The kernel for these sizes: the first alternative whose conditions hold and whose programs may wait for each other,
// or the kernel itself. They may where the GPU runs all at the same time, or twice the blocks of one row: programs
// begin in the order of their numbers, so those that have begun and wait for some that have not belong to one row, fewer
// than it has, and there is room for others. Twice as many, as a kernel that is cooperative may be waiting on another
// stream; of those that are not, one is launched at a time (Context::launch_alone), and none where `captured`: a graph of
// the caller is not ordered with what else runs.
struct Chosen {
  const KernelLaunch* kernel;
  const KernelForm* form;
  bool at_once = false;
};
Result<Chosen> choose(const KernelLaunch& kernel, const KernelForm& form, const SymProgram::State& state,
                      const std::function<Result<int64_t>(const KernelLaunch&)>& resident, bool captured) {
  for (size_t a = 0; a < form.alternatives.size(); ++a) {
    const auto& other = form.alternatives[a];
    if (!holds(other, state)) continue;
    bool at_once = false;
    if (!kernel.alternatives[a].cooperative_blocks.is_const(0)) {
      auto grid = static_cast<size_t>(other.grid), cooperative_blocks = static_cast<size_t>(other.cooperative_blocks);
      if (state.fault[grid] != SymFault::None || state.fault[cooperative_blocks] != SymFault::None) continue;
      TESSERA_ASSIGN(int64_t most, resident(kernel.alternatives[a]));
      at_once = state.value[grid] <= most;
      if (!at_once && captured) continue;
      if (!at_once && state.value[cooperative_blocks] > most / 2) {
        TESSERA_LOGF(LogChannel::Perf, "'" + kernel.name + "': " + std::to_string(state.value[cooperative_blocks]) +
                                           " programs would have to wait for each other, and of all " +
                                           std::to_string(state.value[grid]) + " the device runs " +
                                           std::to_string(most) + " at a time: another kernel runs");
        continue;
      }
    }
    return Chosen{&kernel.alternatives[a], &other, at_once};
  }
  return Chosen{&kernel, &form};
}

// Whether a launch at these sizes stays inside of its buffers: the contract of its code is held against them. False:
// it writes no element, there is nothing to launch.
Result<bool> check_contract(const Variant& v, const Variant::CallState& call, const KernelLaunch& k,
                            const KernelForm& form, const SymProgram::State& state, const SegmentPlan& plan) {
  if (form.access.empty()) return true;
  auto broken = [&](const std::string& what) {
    return Diagnostic(ErrorCode::Internal, "kernel '" + k.name + "' " + what + " for " + sizes_text(v, call))
        .note("the plan and the kernel's code contradict each other: compile the model again");
  };
  bool writes = false;
  for (size_t i = 0; i < form.access.size(); ++i) {
    auto r = static_cast<size_t>(form.access[i].elements);
    const auto& buffer = v.exe->buffers[static_cast<size_t>(k.buffers[i])];
    int64_t there = plan.bytes[static_cast<size_t>(k.buffers[i])];
    if (state.fault[r] != SymFault::None || state.value[r] < 0)
      return broken("accesses a number of elements of '" + buffer.name + "' that cannot be computed");
    if (state.value[r] / 8 > there || byte_size(form.access[i].dtype, state.value[r]) > there)
      return broken("accesses " + std::to_string(state.value[r]) + " elements of '" + buffer.name + "', which has " +
                    std::to_string(there) + " bytes of " + std::string(name(buffer.dtype)));
    writes = writes || (k.written[i] && state.value[r] > 0);
  }
  if (!writes) return false;
  for (size_t i = 0; i < form.facts.size(); ++i) {
    const auto& fact = form.facts[i];
    auto r = static_cast<size_t>(fact.value);
    if (state.fault[r] != SymFault::None || !fact.allows(state.value[r]))
      return broken(
          "was compiled for other sizes: " + k.facts[i].value.str() + " is " +
          (state.fault[r] == SymFault::None ? std::to_string(state.value[r]) : "a size that cannot be computed") +
          ", expected " +
          (fact.multiple_of > 1 ? "a multiple of " + std::to_string(fact.multiple_of) + " " : std::string()) + "from " +
          std::to_string(fact.min) + " to " + std::to_string(fact.max));
  }
  return true;
}

// The numbers of a launch whose registers are in `state`.
Result<LaunchNumbers<int64_t>> numbers_of(const Variant& v, const Variant::CallState& call, const std::string& name,
                                          const KernelForm& form, const SymProgram::State& state) {
  Status status;
  auto numbers = convert_numbers<int64_t>(form, [&](const LaunchField& field, int reg) {
    const auto r = static_cast<size_t>(reg);
    const int64_t n = state.value[r];
    if (!status.ok()) return n;
    if (state.fault[r] != SymFault::None)
      status = no_number(v, call, state.fault[r], "kernel ", name);
    else if (!field.memory.empty() && (n < 0 || n > kMaxScratch))
      status = Diagnostic(ErrorCode::SizeOverflow,
                          "kernel '" + name + "' needs " + std::to_string(n) + " " + std::string(field.memory));
    return n;
  });
  TESSERA_TRY(std::move(status));
  return numbers;
}

// The copies of a GPU check no bounds but those of the map.
Status check_tensor_maps(const Variant& v, const Variant::CallState& call, const KernelLaunch& k,
                         const LaunchNumbers<int64_t>& launch, const SegmentPlan& plan) {
  for (const auto& map : launch.tensor_maps) {
    if (is_empty(map)) continue;
    const auto buffer = static_cast<size_t>(k.buffers[static_cast<size_t>(map.buffer)]);
    if (const auto why = refusal(map, plan.bytes[buffer]); !why.empty())
      return Diagnostic(ErrorCode::Internal, "kernel '" + k.name + "' has a tensor map of '" +
                                                 v.exe->buffers[buffer].name + "' that is not possible for " +
                                                 sizes_text(v, call) + ": " + why)
          .note("the plan and the kernel's code contradict each other: compile the model again");
  }
  return {};
}

// The launch for the sizes in `state`. Arguments are those of choose(), check_contract() and numbers_of().
Result<StepPlan> plan_launch(const Variant& v, const Variant::CallState& call, const KernelLaunch& kernel,
                             const KernelForm& form, const SymProgram::State& state, const SegmentPlan& plan,
                             const std::function<Result<int64_t>(const KernelLaunch&)>& resident, bool captured) {
  TESSERA_ASSIGN(const Chosen chosen, choose(kernel, form, state, resident, captured));
  StepPlan step;
  step.kernel = chosen.kernel;
  step.at_once = chosen.at_once;
  TESSERA_ASSIGN(const bool writes, check_contract(v, call, *chosen.kernel, *chosen.form, state, plan));
  if (writes) {
    TESSERA_ASSIGN(step.launch, numbers_of(v, call, kernel.name, *chosen.form, state));
    TESSERA_TRY(check_tensor_maps(v, call, *chosen.kernel, step.launch, plan));
  }
  return step;
}

int64_t round_up(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

class Planner {
public:
  Planner(const Variant& v, int segment, Variant::CallState& call, Device& device, LoadedCode& loaded, bool wait,
          bool captured)
      : v_(v), segment_(segment), call_(call), device_(device), loaded_(loaded), wait_(wait), captured_(captured),
        plan_(std::make_unique<SegmentPlan>()) {}

  Result<std::unique_ptr<SegmentPlan>> run() {
    plan_->waited = wait_;
    Variant::append_key(call_, plan_->key);
    evaluate_sizes(v_, call_);
    TESSERA_TRY(buffers());
    TESSERA_TRY(device_.choose(v_, segment_, call_, wait_, *plan_));
    TESSERA_TRY(arena());
    TESSERA_TRY(steps());
    TESSERA_TRY(device_.plan(v_, loaded_, segment_, call_, *plan_));
    if (alone_) {
      // Now, so that capturing loads no kernel.
      TESSERA_ASSIGN(plan_->captured, Planner(v_, segment_, call_, device_, loaded_, wait_, true).run());
      plan_->captured->improvements.clear();
    }
    return std::move(plan_);
  }

private:
  Status buffers() {
    auto count = v_.exe->buffers.size();
    plan_->shapes.resize(v_.shapes.size());
    plan_->bytes.assign(count, 0);
    constexpr int64_t kUnknown = -1;
    std::vector<int64_t> elements(v_.shapes.size(), kUnknown);
    const int64_t memory = device_.memory();
    for (size_t b = 0; b < count; ++b) {
      const auto& info = v_.exe->buffers[b];
      if (v_.buffer_segment[b] > segment_) continue;
      const auto shape = static_cast<size_t>(v_.buffer_shape[b]);
      if (elements[shape] == kUnknown) {
        TESSERA_ASSIGN(auto dims, dims_of(v_, call_, static_cast<BufferId>(b)));
        auto counted = element_count(dims);
        if (!counted.ok())
          return Diagnostic(ErrorCode::SizeOverflow, "'" + info.name + "': " + counted.error().message);
        elements[shape] = *counted;
        plan_->shapes[shape] = std::move(dims);
      }
      plan_->bytes[b] = byte_size(info.dtype, elements[shape]);
      bool given = info.kind == BufferInfo::Kind::Input || info.kind == BufferInfo::Kind::Constant;
      if (!given && plan_->bytes[b] > memory)
        return Diagnostic(ErrorCode::OutOfMemory, "'" + info.name + "' would have " + std::to_string(plan_->bytes[b]) +
                                                      " bytes, the machine has " + std::to_string(memory));
    }
    return {};
  }

  Status arena() {
    const auto& ids = v_.temporaries[static_cast<size_t>(segment_)];
    std::vector<int> index(v_.exe->buffers.size(), -1);
    std::vector<PlannedBuffer> planned;
    for (auto id : ids) {
      const auto& b = v_.exe->buffers[static_cast<size_t>(id)];
      index[static_cast<size_t>(id)] = static_cast<int>(planned.size());
      int64_t bytes = unused(b) ? 0 : plan_->bytes[static_cast<size_t>(id)];
      planned.push_back({round_up(bytes + device_.red_zone(), device_.alignment()), b.first_step, b.last_step, -1});
    }
    for (auto id : ids)
      if (int from = v_.in_place_of[static_cast<size_t>(id)]; from >= 0)
        planned[static_cast<size_t>(index[static_cast<size_t>(id)])].in_place_of = index[static_cast<size_t>(from)];
    std::vector<BufferId> lenders;
    const std::vector<Lent> lent = this->lent(lenders);
    TESSERA_ASSIGN(auto memory, plan_memory(planned, lent));
    for (size_t i = 0; i < ids.size(); ++i) {
      const BufferId in = memory.lent[i] < 0 ? -1 : lenders[static_cast<size_t>(memory.lent[i])];
      plan_->places.push_back({ids[i], in, memory.offsets[i]});
      plan_->overwrites_inputs = plan_->overwrites_inputs || (in >= 0 && buffer(in).kind == BufferInfo::Kind::Input);
    }
    plan_->arena_bytes = memory.bytes;
    return {};
  }

  [[nodiscard]] const BufferInfo& buffer(BufferId id) const { return v_.exe->buffers[static_cast<size_t>(id)]; }

  // Memory of the call in which temporaries may lie, and whose it is.
  std::vector<Lent> lent(std::vector<BufferId>& lenders) const {
    std::vector<Lent> out;
    if (!call_.lends_outputs) return out;
    const int steps = static_cast<int>(v_.exe->steps.size());
    auto add = [&](BufferId id, int first, int last) {
      const int64_t bytes = plan_->bytes[static_cast<size_t>(id)] / device_.alignment() * device_.alignment();
      if (!has_bytes(buffer(id).dtype) || bytes == 0 || first > last) return;
      out.push_back({bytes, first, last});
      lenders.push_back(id);
    };
    std::set<BufferId> seen;
    for (const auto& output : v_.exe->outputs)
      if (buffer(output.buffer).kind == BufferInfo::Kind::Output && seen.insert(output.buffer).second)
        add(output.buffer, 0, buffer(output.buffer).first_step - 1);
    if (call_.donated.empty()) return out;
    std::vector<int> last_reader(v_.exe->buffers.size(), -1);
    for (int s = 0; s < steps; ++s)
      for (BufferId b : buffers_of(v_.exe->steps[static_cast<size_t>(s)]).read)
        if (b >= 0) last_reader[static_cast<size_t>(b)] = s;
    for (size_t i = 0; i < call_.donated.size(); ++i)
      if (call_.donated[i]) {
        const BufferId id = v_.inputs[i].binding->buffer;
        add(id, last_reader[static_cast<size_t>(id)] + 1, steps);
      }
    return out;
  }

  // Only steps that are left out use it.
  [[nodiscard]] bool unused(const BufferInfo& b) const {
    int begin = v_.segment_begin[static_cast<size_t>(segment_)];
    auto count = static_cast<int>(plan_->left_out.size());
    if (b.first_step < begin || b.last_step >= begin + count || b.last_step < b.first_step) return false;
    for (int s = b.first_step; s <= b.last_step; ++s)
      if (!plan_->left_out[static_cast<size_t>(s - begin)]) return false;
    return true;
  }

  Status steps() {
    int begin = v_.segment_begin[static_cast<size_t>(segment_)],
        end = v_.segment_begin[static_cast<size_t>(segment_) + 1];
    plan_->steps.resize(static_cast<size_t>(end - begin));
    for (int s = begin; s < end; ++s) {
      const auto& form = v_.steps[static_cast<size_t>(s)];
      auto& step = plan_->steps[static_cast<size_t>(s - begin)];
      if (const auto* k = std::get_if<KernelLaunch>(form.step)) {
        auto resident = [&](const KernelLaunch& alternative) {
          return device_.resident_programs(loaded_, alternative);
        };
        TESSERA_ASSIGN(step, plan_launch(v_, call_, *k, form.kernel, call_.sizes, *plan_, resident, captured_));
        alone_ = alone_ || (!step.at_once && !step.kernel->cooperative_blocks.is_const(0));
        plan_->worker_scratch = std::max(plan_->worker_scratch, step.launch.scratch_bytes);
      }
      if (form.control.empty()) continue;
      step.numbers = plan_->numbers.size();
      for (int reg : form.control) {
        TESSERA_ASSIGN(int64_t n, number(v_, call_, reg, "", name_of(*form.step)));
        plan_->numbers.push_back(n);
      }
    }
    return {};
  }

  const Variant& v_;
  int segment_;
  Variant::CallState& call_;
  Device& device_;
  LoadedCode& loaded_;
  bool wait_, captured_;
  bool alone_ = false; // some launch is by Context::launch_alone
  std::unique_ptr<SegmentPlan> plan_;
};

} // namespace

void evaluate_sizes(const Variant& variant, Variant::CallState& call) {
  for (size_t i = 0; i < variant.slots.size(); ++i) {
    call.sizes.value[i] = call.values[i];
    call.sizes.fault[i] = call.bound[i] ? SymFault::None : SymFault::Unbound;
  }
  variant.program.run(call.sizes);
}

Result<Dims> dims_of(const Variant& variant, const Variant::CallState& call, BufferId buffer) {
  const auto& info = variant.exe->buffers[static_cast<size_t>(buffer)];
  Dims dims;
  const auto& registers = variant.shapes[static_cast<size_t>(variant.buffer_shape[static_cast<size_t>(buffer)])];
  dims.reserve(registers.size());
  for (int reg : registers) {
    TESSERA_ASSIGN(int64_t d, number(variant, call, reg, "the size of ", info.name));
    if (d < 0)
      return Diagnostic(ErrorCode::BadInput, "'" + info.name + "' would have a dimension of " + std::to_string(d) +
                                                 " for " + sizes_text(variant, call));
    dims.push_back(d);
  }
  return dims;
}

Result<std::unique_ptr<SegmentPlan>> plan_segment(const Variant& variant, int segment, Variant::CallState& call,
                                                  Device& device, LoadedCode& loaded, bool wait) {
  return Planner(variant, segment, call, device, loaded, wait, false).run();
}

namespace {
const Tensor* constant_of(const Variant& v, BufferId buffer) {
  const auto& info = v.exe->buffers[static_cast<size_t>(buffer)];
  if (info.kind != BufferInfo::Kind::Constant) return nullptr;
  return &v.exe->constants[static_cast<size_t>(info.constant)].value;
}

Result<Operand> concrete_operand(const Variant& v, const OperandForm& form, const Variant::CallState& call,
                                 const SegmentPlan& plan, const std::string& name, bool result) {
  Operand o;
  o.buffer = form.buffer;
  o.shape.reserve(form.shape.size());
  o.strides.reserve(form.shape.size());
  for (size_t d = 0; d < form.shape.size(); ++d) {
    TESSERA_ASSIGN(int64_t size, number(v, call, form.shape[d], "", name));
    TESSERA_ASSIGN(int64_t stride, number(v, call, form.strides[d], "", name));
    o.shape.push_back(size);
    o.strides.push_back(stride);
  }
  TESSERA_ASSIGN(o.offset, number(v, call, form.offset, "", name));
  // Every element that it addresses must be inside of the buffer.
  int64_t last = o.offset;
  bool empty = false, fine = o.offset >= 0;
  for (size_t d = 0; d < o.shape.size(); ++d) {
    int64_t reach = 0;
    empty = empty || o.shape[d] == 0;
    if (o.shape[d] == 1) o.strides[d] = std::max<int64_t>(o.strides[d], 0);
    fine = fine && o.shape[d] >= 0 && o.strides[d] >= 0;
    if (o.shape[d] > 0)
      fine = fine && !__builtin_mul_overflow(o.shape[d] - 1, o.strides[d], &reach) &&
             !__builtin_add_overflow(last, reach, &last);
  }
  const auto& info = v.exe->buffers[static_cast<size_t>(form.buffer)];
  o.dtype = info.dtype;
  const int64_t there = plan.bytes[static_cast<size_t>(form.buffer)] / byte_size(info.dtype, 1);
  if (result && fine) { // no two elements of a result lie in one place
    auto count = element_count(o.shape);
    fine = count.ok() && *count <= there;
  }
  if (!fine || (!empty && last >= there))
    return Diagnostic(ErrorCode::Internal,
                      "library call '" + name + "' reaches outside of '" + info.name + "' for " + sizes_text(v, call));
  o.constant = constant_of(v, form.buffer);
  return o;
}
} // namespace

Result<std::vector<Operand>> concrete_operands(const Variant& variant, const StepForm& form,
                                               const Variant::CallState& call, const SegmentPlan& plan) {
  std::vector<Operand> operands;
  operands.reserve(form.operands.size());
  for (const auto& o : form.operands) {
    TESSERA_ASSIGN(auto concrete,
                   concrete_operand(variant, o, call, plan, name_of(*form.step), operands.size() == form.result));
    operands.push_back(std::move(concrete));
  }
  return operands;
}

void change_buffers(const Variant& variant, const StepForm& form, std::span<Operand> operands) {
  for (size_t o = 0; o < operands.size(); ++o) {
    operands[o].buffer = form.operands[o].buffer;
    operands[o].constant = constant_of(variant, form.operands[o].buffer);
  }
}

EpilogueSizes::EpilogueSizes(const Variant& variant, const EpilogueForm& form, const Variant::CallState& call,
                             const SegmentPlan& plan)
    : variant_(variant), form_(form), call_(call), plan_(plan) {
  form.program.prepare(state_);
  for (size_t i = 0; i < variant.slots.size(); ++i) {
    state_.value[i] = call.values[i];
    state_.fault[i] = call.bound[i] ? SymFault::None : SymFault::Unbound;
  }
}

Result<StepPlan> EpilogueSizes::at(std::span<const int64_t> box) {
  // Inputs follow the slots in the order begin, count.
  for (size_t i = 0; i < box.size(); ++i) {
    state_.value[variant_.slots.size() + i] = box[i];
    state_.fault[variant_.slots.size() + i] = SymFault::None;
  }
  form_.program.run(state_);
  auto none_run = [](const KernelLaunch&) -> Result<int64_t> { return 0; };
  return plan_launch(variant_, call_, form_.source->kernel, form_.kernel, state_, plan_, none_run, true);
}

int64_t SegmentPlan::host_bytes() const {
  auto of = [](const auto& v) { return static_cast<int64_t>(v.capacity() * sizeof(v[0])); };
  int64_t total =
      static_cast<int64_t>(sizeof *this) + of(key) + of(shapes) + of(bytes) + of(places) + of(numbers) + of(steps);
  for (const Dims& d : shapes) total += of(d);
  for (const StepPlan& step : steps) total += of(step.launch.sizes) + of(step.launch.workspaces);
  return total + (device ? device->host_bytes() : 0) + (captured ? captured->host_bytes() : 0);
}

} // namespace tessera
