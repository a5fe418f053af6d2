#include "runtime/shape_plan.h"
#include <algorithm>
#include <atomic>

namespace tessera {
namespace {

// Elements of pointwise work that are worth handing to another core: some microseconds.
constexpr int64_t kElementsPerChunk = 8192;
constexpr int64_t kMaxScratch = int64_t{1} << 40;

std::string sizes_text(const Variant& v, const Variant::CallState& call) {
  std::string s;
  for (size_t i = 0; i < v.slots.size(); ++i)
    if (call.bound[i]) s += (s.empty() ? "" : ", ") + v.slots[i].symbol_name() + " = " + std::to_string(call.values[i]);
  return s.empty() ? "constant sizes" : s;
}

class Planner {
public:
  Planner(const Variant& v, int segment, Variant::CallState& call, ThreadPool& pool)
      : v_(v), segment_(segment), call_(call), pool_(pool), plan_(std::make_unique<SegmentPlan>()) {}

  Result<std::unique_ptr<SegmentPlan>> run() {
    for (size_t i = 0; i < v_.slots.size(); ++i) {
      call_.sizes.value[i] = call_.values[i];
      call_.sizes.fault[i] = call_.bound[i] ? SymFault::None : SymFault::Unbound;
      plan_->key.push_back(call_.bound[i] ? call_.values[i] : -1);
    }
    v_.program.run(call_.sizes);
    TESSERA_TRY(buffers());
    TESSERA_TRY(arena());
    TESSERA_TRY(steps());
    return std::move(plan_);
  }

private:
  Result<int64_t> number(int reg, const std::string& what) const {
    auto r = static_cast<size_t>(reg);
    if (call_.sizes.fault[r] == SymFault::None) return call_.sizes.value[r];
    return Diagnostic(call_.sizes.fault[r] == SymFault::Overflow ? ErrorCode::SizeOverflow : ErrorCode::BadInput,
                      what + " " + std::string(describe(call_.sizes.fault[r])) + " for " + sizes_text(v_, call_));
  }

  Status buffers() {
    auto count = v_.exe->buffers.size();
    plan_->dims.resize(count);
    plan_->bytes.assign(count, 0);
    for (size_t b = 0; b < count; ++b) {
      const auto& info = v_.exe->buffers[b];
      if (v_.buffer_segment[b] > segment_) continue;
      Dims dims;
      for (int reg : v_.buffer_dims[b]) {
        TESSERA_ASSIGN(int64_t d, number(reg, "the size of '" + info.name + "'"));
        if (d < 0)
          return Diagnostic(ErrorCode::BadInput, "'" + info.name + "' would have a dimension of " + std::to_string(d) +
                                                     " for " + sizes_text(v_, call_));
        dims.push_back(d);
      }
      auto elements = element_count(dims);
      if (!elements.ok())
        return Diagnostic(ErrorCode::SizeOverflow, "'" + info.name + "': " + elements.error().message);
      plan_->bytes[b] = byte_size(info.dtype, *elements);
      plan_->dims[b] = std::move(dims);
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
      planned.push_back({plan_->bytes[static_cast<size_t>(id)], b.first_step, b.last_step, -1});
    }
    for (auto id : ids)
      if (int from = v_.in_place_of[static_cast<size_t>(id)]; from >= 0)
        planned[static_cast<size_t>(index[static_cast<size_t>(id)])].in_place_of = index[static_cast<size_t>(from)];
    TESSERA_ASSIGN(auto memory, plan_memory(planned));
    for (size_t i = 0; i < ids.size(); ++i) plan_->offsets.emplace_back(ids[i], memory.offsets[i]);
    plan_->arena_bytes = memory.bytes;
    return {};
  }

  Status steps() {
    int begin = v_.segment_begin[static_cast<size_t>(segment_)],
        end = v_.segment_begin[static_cast<size_t>(segment_) + 1];
    plan_->steps.resize(static_cast<size_t>(end - begin));
    std::vector<int> library;
    for (int s = begin; s < end; ++s) {
      const auto& form = v_.steps[static_cast<size_t>(s)];
      auto& step = plan_->steps[static_cast<size_t>(s - begin)];
      if (const auto* k = std::get_if<KernelLaunch>(form.step)) TESSERA_TRY(kernel(*k, form.kernel, step));
      if (std::holds_alternative<LibraryStep>(*form.step)) library.push_back(s);
      step.bytes = traffic(*form.step);
    }
    // Library calls create primitives and pack weights: independent of each other and dear, so in parallel.
    std::vector<std::optional<Diagnostic>> errors(library.size());
    PackRequests packs;
    auto body = [&](int64_t from, int64_t to, int) {
      for (int64_t i = from; i < to; ++i) {
        int s = library[static_cast<size_t>(i)];
        if (auto status = call(v_.steps[static_cast<size_t>(s)], plan_->steps[static_cast<size_t>(s - begin)], packs);
            !status.ok())
          errors[static_cast<size_t>(i)] = status.error();
      }
    };
    pool_.parallel_for(static_cast<int64_t>(library.size()), 1, body);
    auto built = packs.build(pool_); // also after an error: other executors may wait for these packs
    for (auto& e : errors)
      if (e) return std::move(*e);
    TESSERA_TRY(std::move(built));
    plan_->packed_bytes = packs.built_bytes();
    for (auto& step : plan_->steps) {
      if (!step.library) continue;
      plan_->step_scratch = std::max(plan_->step_scratch, step.library->step_scratch);
      plan_->worker_scratch = std::max(plan_->worker_scratch, step.library->worker_scratch +
                                                                  (step.epilogue ? step.epilogue->scratch_bytes : 0));
    }
    return {};
  }

  Status kernel(const KernelLaunch& k, const KernelForm& form, StepPlan& step) {
    auto what = "kernel '" + k.name + "'";
    step.sizes = plan_->numbers.size();
    for (int reg : form.sizes) {
      TESSERA_ASSIGN(int64_t n, number(reg, what));
      plan_->numbers.push_back(n);
    }
    TESSERA_ASSIGN(step.grid, number(form.grid, what));
    TESSERA_ASSIGN(int64_t work, number(form.work, what));
    TESSERA_ASSIGN(int64_t scratch, number(form.scratch, what));
    if (scratch > kMaxScratch)
      return Diagnostic(ErrorCode::SizeOverflow,
                        what + " needs " + std::to_string(scratch) + " bytes of scratch memory");
    step.grain = std::max<int64_t>(1, kElementsPerChunk / std::max<int64_t>(work, 1));
    plan_->worker_scratch = std::max(plan_->worker_scratch, scratch);
    return {};
  }

  Result<Operand> operand(const OperandForm& form, const std::string& name) const {
    Operand o;
    o.buffer = form.buffer;
    for (size_t d = 0; d < form.shape.size(); ++d) {
      TESSERA_ASSIGN(int64_t size, number(form.shape[d], name));
      TESSERA_ASSIGN(int64_t stride, number(form.strides[d], name));
      o.shape.push_back(size);
      o.strides.push_back(stride);
    }
    TESSERA_ASSIGN(o.offset, number(form.offset, name));
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
    const auto& info = v_.exe->buffers[static_cast<size_t>(form.buffer)];
    if (!fine || (!empty && last >= plan_->bytes[static_cast<size_t>(form.buffer)] / 4))
      return Diagnostic(ErrorCode::Internal, "library call '" + name + "' reaches outside of '" + info.name + "' for " +
                                                 sizes_text(v_, call_));
    if (info.kind == BufferInfo::Kind::Constant) {
      o.constant = &v_.exe->constants[static_cast<size_t>(info.constant)].value;
      o.sole_reader = v_.sole_reader[static_cast<size_t>(info.constant)];
    }
    return o;
  }

  Status call(const StepForm& form, StepPlan& step, PackRequests& packs) const {
    const auto& library = std::get<LibraryStep>(*form.step);
    PlanContext context{pool_.threads(), form.epilogue.has_value(), library.name, &packs};
    std::vector<Operand> operands;
    for (const auto& o : form.operands) {
      TESSERA_ASSIGN(auto concrete, operand(o, library.name));
      operands.push_back(std::move(concrete));
    }
    if (std::holds_alternative<MatmulCall>(library.call)) {
      TESSERA_ASSIGN(step.library, plan_matmul(context, operands[0], operands[1], operands[2]));
    } else if (const auto* conv = std::get_if<ConvCall>(&library.call)) {
      TESSERA_ASSIGN(step.library, plan_conv(context, *conv, operands[0], operands[1], operands[2]));
    } else {
      TESSERA_ASSIGN(step.library, plan_pool(context, std::get<PoolCall>(library.call), operands[0], operands[1]));
    }
    if (form.epilogue) TESSERA_TRY(epilogue(*form.epilogue, library.name, step));
    return {};
  }

  Status epilogue(const EpilogueForm& form, const std::string& name, StepPlan& step) const {
    auto plan = std::make_unique<EpiloguePlan>();
    const auto& kernel = form.source->kernel;
    plan->function = kernel.function;
    plan->buffers = kernel.buffers;
    plan->sizes_per_box = form.kernel.sizes.size();
    SymProgram::State state;
    form.program.prepare(state);
    size_t slots = v_.slots.size(), dims = static_cast<size_t>(step.library->rank);
    for (size_t i = 0; i < slots; ++i) {
      state.value[i] = call_.values[i];
      state.fault[i] = call_.bound[i] ? SymFault::None : SymFault::Unbound;
    }
    bool fine = true;
    auto get = [&](int reg) {
      fine = fine && state.fault[static_cast<size_t>(reg)] == SymFault::None;
      return state.value[static_cast<size_t>(reg)];
    };
    for (int box = 0; box < step.library->box_count; ++box) {
      const int64_t* numbers = step.library->boxes.data() + static_cast<size_t>(box) * dims * 2;
      for (size_t i = 0; i < dims * 2; ++i) {
        // A symbol may be a slot already (never in practice); inputs follow the slots in the order begin, count.
        state.value[slots + i] = numbers[i];
        state.fault[slots + i] = SymFault::None;
      }
      form.program.run(state);
      for (int reg : form.kernel.sizes) plan->sizes.push_back(get(reg));
      plan->grids.push_back(get(form.kernel.grid));
      plan->scratch_bytes = std::max(plan->scratch_bytes, get(form.kernel.scratch));
    }
    if (!fine || plan->scratch_bytes > kMaxScratch)
      return Diagnostic(ErrorCode::SizeOverflow, "the epilogue of '" + name +
                                                     "' has sizes that cannot be computed for " +
                                                     sizes_text(v_, call_));
    step.epilogue = std::move(plan);
    return {};
  }

  int64_t traffic(const Step& step) const {
    auto used = buffers_of(step);
    std::sort(used.read.begin(), used.read.end());
    used.read.erase(std::unique(used.read.begin(), used.read.end()), used.read.end());
    int64_t bytes = 0;
    for (auto b : used.read)
      if (std::find(used.written.begin(), used.written.end(), b) == used.written.end())
        bytes += plan_->bytes[static_cast<size_t>(b)];
    for (auto b : used.written) bytes += plan_->bytes[static_cast<size_t>(b)];
    return bytes;
  }

  const Variant& v_;
  int segment_;
  Variant::CallState& call_;
  ThreadPool& pool_;
  std::unique_ptr<SegmentPlan> plan_;
};

} // namespace

Result<std::unique_ptr<SegmentPlan>> plan_segment(const Variant& variant, int segment, Variant::CallState& call,
                                                  ThreadPool& pool) {
  return Planner(variant, segment, call, pool).run();
}

SegmentPlan* ShapePlanCache::find(int segment, const Variant::CallState& call) {
  if (static_cast<size_t>(segment) >= segments_.size()) return nullptr;
  auto& plans = segments_[static_cast<size_t>(segment)];
  for (size_t p = 0; p < plans.size(); ++p) {
    const auto& key = plans[p]->key;
    bool same = true;
    for (size_t i = 0; i < key.size() && same; ++i) same = key[i] == (call.bound[i] ? call.values[i] : -1);
    if (!same) continue;
    std::rotate(plans.begin(), plans.begin() + static_cast<std::ptrdiff_t>(p),
                plans.begin() + static_cast<std::ptrdiff_t>(p) + 1);
    return plans.front().get();
  }
  return nullptr;
}

SegmentPlan* ShapePlanCache::insert(int segment, std::unique_ptr<SegmentPlan> plan) {
  if (static_cast<size_t>(segment) >= segments_.size()) segments_.resize(static_cast<size_t>(segment) + 1);
  auto& plans = segments_[static_cast<size_t>(segment)];
  if (plans.size() >= kCapacity) plans.pop_back();
  plans.insert(plans.begin(), std::move(plan));
  return plans.front().get();
}

} // namespace tessera
