#include "graph/support/log.h"
#include "runtime/shape_plan.h"
#include <algorithm>
#include <chrono>
#include <cstring>
#include <sys/mman.h>

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

// Memory that grows and is kept between runs; large blocks ask for huge pages.
class Block {
public:
  [[nodiscard]] bool reserve(int64_t bytes) {
    auto wanted = static_cast<size_t>(bytes);
    if (wanted <= bytes_) return true;
    release();
    constexpr size_t kPage = 4096, kHuge = size_t{4} << 20;
    wanted = (wanted + kPage - 1) / kPage * kPage;
    void* p = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    if (wanted >= kHuge) (void)::madvise(p, wanted, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(p);
    bytes_ = wanted;
    return true;
  }
  void release() {
    if (data_) ::munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] bool contains(const void* p) const { return p >= data_ && p < data_ + bytes_; }
  Block() = default;
  Block(Block&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  Block& operator=(Block&&) = delete;
  ~Block() { release(); }

private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

struct LoadedVariant {
  std::unique_ptr<Variant> variant;
  Variant::CallState call;
  ShapePlanCache plans;
  // The memory of outputs given out before: used again when the caller has dropped the tensor.
  std::vector<std::pair<std::shared_ptr<std::byte>, size_t>> spare_outputs;
};

// A guard that a host step's sizes missed while the run was under way: the run starts again with another variant.
struct MidRunMiss {
  int guard;
};

class ExecutorImpl final : public Executor {
public:
  explicit ExecutorImpl(ExecutorOptions options) : options_(std::move(options)) {
    if (!options_.pool) options_.pool = ThreadPool::create();
    worker_scratch_.resize(static_cast<size_t>(options_.pool->threads()));
    worker_pointers_.resize(worker_scratch_.size());
  }

  Status add(std::shared_ptr<const Executable> executable, size_t at) {
    auto loaded = std::make_unique<LoadedVariant>();
    TESSERA_ASSIGN(loaded->variant, Variant::create(executable));
    loaded->variant->prepare(loaded->call);
    loaded->spare_outputs.resize(executable->outputs.size());
    max_kernel_buffers_ = std::max(max_kernel_buffers_, loaded->variant->max_kernel_buffers);
    max_segments_ = std::max(max_segments_, loaded->variant->segment_begin.size() - 1);
    max_buffers_ = std::max(max_buffers_, executable->buffers.size());
    loaded_.insert(loaded_.begin() + static_cast<std::ptrdiff_t>(at), std::move(loaded));
    variants_.insert(variants_.begin() + static_cast<std::ptrdiff_t>(at), std::move(executable));
    pointers_.resize(max_buffers_);
    held_.resize(max_buffers_);
    is_held_.resize(max_buffers_);
    dims_.resize(max_buffers_);
    bytes_.resize(max_buffers_);
    args_.resize(max_kernel_buffers_);
    while (arenas_.size() < max_segments_) arenas_.emplace_back();
    return {};
  }

  Result<std::vector<Tensor>> run(const std::map<std::string, Tensor>& inputs, RunStats* stats,
                                  std::vector<Tensor>* outputs) override {
    auto start = Clock::now();
    RunStats local;
    stats_ = stats ? stats : &local;
    *stats_ = RunStats{};
    std::optional<Result<std::vector<Tensor>>> result;
    struct Frame {
      ExecutorImpl* self;
      const std::map<std::string, Tensor>& inputs;
      std::vector<Tensor>* outputs;
      std::optional<Result<std::vector<Tensor>>>& result;
    };
    Frame frame{this, inputs, outputs, result};
    options_.pool->region([&frame] { frame.result.emplace(frame.self->choose_and_run(frame.inputs, frame.outputs)); });
    let_go();
    given_.clear();
    stats_->total_ms = ms_since(start);
    stats_ = nullptr;
    return std::move(*result);
  }

  [[nodiscard]] const std::vector<std::shared_ptr<const Executable>>& variants() const override { return variants_; }
  [[nodiscard]] int64_t arena_bytes() const override { return arena_bytes_; }
  Status add_variant(std::shared_ptr<const Executable> executable, size_t at) override {
    if (!executable) return Diagnostic(ErrorCode::Usage, "an executable is missing");
    return add(std::move(executable), std::min(at, loaded_.size() - 1));
  }

private:
  static constexpr size_t kMaxVariants = 16, kMaxFailures = 64;

  // ---- which variant
  struct Refusal {
    Diagnostic error;
    bool miss = false;
    GuardMiss guard;
  };
  // Nothing: the variant fits.
  std::optional<Refusal> refusal(LoadedVariant& l, const std::map<std::string, Tensor>& inputs) {
    if (auto s = l.variant->bind(inputs, l.call); !s.ok()) return Refusal{s.error(), false, {}};
    int g = l.variant->guards.check(l.call.values, l.call.bound, l.call.guards);
    if (g < 0) return std::nullopt;
    return refused_by(l, g);
  }

  static std::string text_of(const std::map<std::string, int64_t>& sizes) {
    std::string text;
    for (const auto& [name, value] : sizes) text += (text.empty() ? "" : ", ") + name + " = " + std::to_string(value);
    return text;
  }

  Refusal refused_by(LoadedVariant& l, int guard) {
    Refusal r;
    r.guard = l.variant->guards.explain(guard, l.call.values, l.call.bound);
    r.miss = !l.variant->guards.required(guard);
    r.error = Diagnostic(ErrorCode::GuardFailed, "the inputs do not satisfy " + r.guard.guard + " (" + r.guard.reason +
                                                     "): " + text_of(r.guard.sizes));
    for (const SymExpr& symbol : l.variant->guards.guard(guard).condition.symbols()) {
      std::string places;
      for (const auto& input : l.variant->exe->inputs) {
        const auto& shape = l.variant->exe->buffers[static_cast<size_t>(input.buffer)].shape;
        for (size_t d = 0; d < shape.size(); ++d)
          if (shape[d] == symbol)
            places += (places.empty() ? " is dimension " : ", dimension ") + std::to_string(d) + " of input '" +
                      input.name + "'";
      }
      if (!places.empty()) r.error.note(symbol.symbol_name() + places);
    }
    if (!r.guard.where.empty()) r.error.note("needed by " + r.guard.where);
    return r;
  }

  void record(size_t variant, const Refusal& r) {
    if (!r.miss) return;
    stats_->misses.push_back(r.guard);
    if (log_enabled(LogChannel::Guards))
      log_write(LogChannel::Guards, "variant " + std::to_string(variant) + " missed: " + r.error.message);
  }

  Result<std::vector<Tensor>> choose_and_run(const std::map<std::string, Tensor>& inputs,
                                             std::vector<Tensor>* outputs) {
    bool may_compile = static_cast<bool>(options_.recompile);
    std::optional<Refusal> last;
    std::optional<GuardMiss> first_miss;
    for (size_t i = 0; i < loaded_.size(); ++i) {
      // Before falling to the generic variant: one compiled for these sizes, when that is wanted.
      bool generic = i + 1 == loaded_.size();
      if (generic && first_miss && may_compile) {
        // Inputs that no variant can take are an error, not a reason to compile.
        if (auto hard = refusal(*loaded_[i], inputs); hard && !hard->miss) return std::move(hard->error);
        may_compile = false;
        if (recompile(inputs, *first_miss, i)) generic = false;
      }
      auto refused = refusal(*loaded_[i], inputs);
      if (!refused) {
        stats_->variant = static_cast<int>(i);
        auto done = run_variant(*loaded_[i], outputs);
        if (auto* r = std::get_if<Result<std::vector<Tensor>>>(&done)) return std::move(*r);
        refused = refused_by(*loaded_[i], std::get<MidRunMiss>(done).guard);
        if (!refused->miss) return std::move(refused->error);
      }
      // Sizes that a specialised variant does not take are a miss like any other.
      if (!generic && refused->error.code == ErrorCode::BadInput) {
        refused->miss = true;
        refused->guard.guard = refused->error.message;
        refused->guard.reason = "sizes that the variant was compiled for";
      }
      record(i, *refused);
      if (refused->miss && !first_miss) first_miss = refused->guard;
      last = std::move(refused);
      // The generic variant missed a guard itself: the last resort is to compile.
      if (generic && last->miss && may_compile) {
        may_compile = false;
        if (recompile(inputs, last->guard, i)) --i;
      }
    }
    Diagnostic error = last->error;
    if (!last->miss) return error;
    if (auto failed = failed_compiles_.find(last->guard.sizes); failed != failed_compiles_.end())
      error.note("compiling a variant for these sizes failed: " + failed->second.str());
    else if (!options_.recompile)
      error.note("no other variant fits, and compiling another one was not asked for");
    else if (loaded_.size() >= kMaxVariants)
      error.note("the limit of " + std::to_string(kMaxVariants) + " variants is reached");
    else
      error.note("compiling another variant did not help");
    return error;
  }

  // True: a new variant stands at `at`.
  bool recompile(const std::map<std::string, Tensor>& inputs, const GuardMiss& miss, size_t at) {
    if (loaded_.size() >= kMaxVariants) {
      TESSERA_LOGF(LogChannel::Recompiles,
                   "not compiling: the limit of " + std::to_string(kMaxVariants) + " variants is reached");
      return false;
    }
    if (failed_compiles_.contains(miss.sizes)) {
      TESSERA_LOGF(LogChannel::Recompiles, "not compiling: it failed before for " + text_of(miss.sizes));
      return false;
    }
    auto start = Clock::now();
    std::map<std::string, Dims> shapes;
    for (auto& [name, tensor] : inputs) shapes.emplace(name, tensor.dims());
    auto compiled = options_.recompile(shapes, miss);
    if (compiled.ok() && !*compiled) return false;
    Status added = compiled.ok() ? add(*compiled, at) : Status();
    double ms = ms_since(start);
    stats_->recompile_ms += ms;
    const std::string why = miss.guard + " did not hold (" + miss.reason + ") for " + text_of(miss.sizes);
    if (!compiled.ok() || !added.ok()) {
      const Diagnostic& error = compiled.ok() ? added.error() : compiled.error();
      if (failed_compiles_.size() >= kMaxFailures) failed_compiles_.clear();
      failed_compiles_.emplace(miss.sizes, error);
      TESSERA_LOGF(LogChannel::Recompiles,
                   why + "; compiling another variant failed after " + std::to_string(ms) + " ms: " + error.str());
      return false;
    }
    ++stats_->recompiles;
    TESSERA_LOGF(LogChannel::Recompiles, why + "; another variant took " + std::to_string(ms) + " ms");
    return true;
  }

  // ---- one run
  using Outcome = std::variant<Result<std::vector<Tensor>>, MidRunMiss>;
  Outcome run_variant(LoadedVariant& l, std::vector<Tensor>* outputs) {
    const auto& v = *l.variant;
    const auto& exe = *v.exe;
    if (outputs && outputs->size() != exe.outputs.size())
      return fail(Diagnostic(ErrorCode::BadInput, std::to_string(outputs->size()) +
                                                      " output tensors were given, the model has " +
                                                      std::to_string(exe.outputs.size())));
    std::copy(v.constant_pointers.begin(), v.constant_pointers.end(), pointers_.begin());
    let_go();
    for (size_t i = 0; i < v.inputs.size(); ++i)
      pointers_[static_cast<size_t>(v.inputs[i].binding->buffer)] = const_cast<std::byte*>(l.call.tensors[i]->data());
    given_.assign(exe.outputs.size(), Tensor());
    arena_bytes_ = 0;
    int segments = static_cast<int>(v.segment_begin.size()) - 1;
    for (int s = 0; s < segments; ++s) {
      auto entered = enter(l, s, outputs);
      if (!entered.ok()) return fail(std::move(entered).take_error());
      SegmentPlan& plan = **entered;
      if (s > 0)
        if (auto status = store_results(l, v.segment_begin[static_cast<size_t>(s)] - 1); !status.ok())
          return fail(std::move(status).take_error());
      int begin = v.segment_begin[static_cast<size_t>(s)], end = v.segment_begin[static_cast<size_t>(s) + 1];
      for (int k = begin; k < end; ++k) {
        auto started = options_.profile ? Clock::now() : Clock::time_point();
        auto& step = plan.steps[static_cast<size_t>(k - begin)];
        if (auto status = execute(l, v.steps[static_cast<size_t>(k)], step, plan, k); !status.ok())
          return fail(std::move(status).take_error());
        if (options_.profile)
          stats_->steps.push_back({name_of(*v.steps[static_cast<size_t>(k)].step), ms_since(started), step.bytes});
      }
      if (s + 1 < segments) {
        if (auto status = define(l, v.segment_begin[static_cast<size_t>(s) + 1] - 1, s + 1); !status.ok())
          return fail(std::move(status).take_error());
        int g = v.guards.check(l.call.values, l.call.bound, l.call.guards);
        if (g >= 0) return MidRunMiss{g};
      }
    }
    stats_->arena_bytes = arena_bytes_;
    return Result<std::vector<Tensor>>(std::move(given_));
  }
  void let_go() {
    if (!std::exchange(holding_, false)) return;
    for (auto& t : held_) t = Tensor();
    std::fill(is_held_.begin(), is_held_.end(), false);
    host_results_.clear();
  }
  static Outcome fail(Diagnostic d) { return Result<std::vector<Tensor>>(std::move(d)); }

  // Plans the segment when its sizes are new; places its temporaries and outputs.
  Result<SegmentPlan*> enter(LoadedVariant& l, int segment, std::vector<Tensor>* outputs) {
    const auto& v = *l.variant;
    SegmentPlan* plan = l.plans.find(segment, l.call);
    if (!plan) {
      auto start = Clock::now();
      TESSERA_ASSIGN(auto made, plan_segment(v, segment, l.call, *options_.pool));
      plan = l.plans.insert(segment, std::move(made));
      stats_->new_shape = true;
      stats_->plan_ms += ms_since(start);
      TESSERA_LOGF(LogChannel::Memory,
                   "new shape: arena " + std::to_string(plan->arena_bytes) + " bytes, scratch " +
                       std::to_string(plan->step_scratch + plan->worker_scratch * options_.pool->threads()) +
                       " bytes, packed weights " + std::to_string(plan->packed_bytes) + " bytes");
    }
    int64_t scratch = plan->step_scratch + plan->worker_scratch * options_.pool->threads();
    arena_bytes_ += plan->arena_bytes + plan->step_scratch;
    if (options_.memory_limit != 0 &&
        static_cast<size_t>(arena_bytes_ + scratch - plan->step_scratch) > options_.memory_limit)
      return Diagnostic(ErrorCode::OutOfMemory,
                        "this shape needs " + std::to_string(arena_bytes_ + scratch - plan->step_scratch) +
                            " bytes for intermediate results, the limit is " + std::to_string(options_.memory_limit));
    auto& arena = arenas_[static_cast<size_t>(segment)];
    auto reserve = [&](Block& block, int64_t bytes) -> Status {
      if (block.reserve(bytes)) return {};
      return Diagnostic(ErrorCode::OutOfMemory,
                        "cannot allocate " + std::to_string(bytes) + " bytes for intermediate results");
    };
    TESSERA_TRY(reserve(arena, plan->arena_bytes));
    TESSERA_TRY(reserve(step_scratch_, plan->step_scratch));
    for (size_t w = 0; w < worker_scratch_.size(); ++w) {
      TESSERA_TRY(reserve(worker_scratch_[w], plan->worker_scratch));
      worker_pointers_[w] = worker_scratch_[w].data();
    }
    for (auto [id, offset] : plan->offsets) pointers_[static_cast<size_t>(id)] = arena.data() + offset;
    if (options_.poison && plan->arena_bytes > 0)
      std::memset(arena.data(), 0xFF, static_cast<size_t>(plan->arena_bytes));
    for (size_t b = 0; b < v.exe->buffers.size(); ++b)
      if (v.buffer_segment[b] <= segment) {
        dims_[b] = &plan->dims[b];
        bytes_[b] = plan->bytes[b];
      }
    for (size_t o = 0; o < v.exe->outputs.size(); ++o)
      if (v.buffer_segment[static_cast<size_t>(v.exe->outputs[o].buffer)] == segment)
        TESSERA_TRY(place_output(l, o, outputs));
    return plan;
  }

  Status place_output(LoadedVariant& l, size_t o, std::vector<Tensor>* outputs) {
    const auto& exe = *l.variant->exe;
    const auto& binding = exe.outputs[o];
    auto id = static_cast<size_t>(binding.buffer);
    const auto& info = exe.buffers[id];
    if (outputs) {
      auto& t = (*outputs)[o];
      if (!t.defined() || t.dtype() != info.dtype || t.dims() != *dims_[id])
        return Diagnostic(ErrorCode::BadInput, "the tensor given for output '" + binding.name +
                                                   "' does not have the type and sizes of the result, " +
                                                   std::string(name(info.dtype)) + str(info.shape));
      for (const auto* input : l.call.tensors)
        if (t.bytes() > 0 && input->dtype() != DType::String && t.data() < input->data() + input->bytes() &&
            input->data() < t.data() + t.bytes())
          return Diagnostic(ErrorCode::BadInput,
                            "the tensor given for output '" + binding.name + "' overlaps an input");
      given_[o] = t;
    } else if (info.dtype == DType::String) {
      TESSERA_ASSIGN(given_[o], Tensor::create(info.dtype, *dims_[id]));
    } else {
      auto bytes = static_cast<size_t>(bytes_[id]);
      auto& [spare, room] = l.spare_outputs[o];
      constexpr size_t kWorthKeeping = 64 << 10; // below, the allocator is as good
      bool mine = spare && spare.use_count() == 1 && room >= bytes && room <= bytes * 2;
      if (mine) {
        std::atomic_thread_fence(std::memory_order_acquire); // after the last reader has let go
        given_[o] = Tensor::view(info.dtype, *dims_[id], Storage{spare, spare.get(), room});
      } else {
        TESSERA_ASSIGN(auto block, allocate_bytes(bytes));
        given_[o] = Tensor::view(info.dtype, *dims_[id], Storage{block, block.get(), bytes});
        if (bytes >= kWorthKeeping) {
          spare = std::move(block);
          room = bytes;
        }
      }
    }
    if (info.dtype == DType::String) return {};
    if (options_.poison && bytes_[id] > 0) std::memset(given_[o].mutable_data(), 0xFF, static_cast<size_t>(bytes_[id]));
    pointers_[id] = given_[o].mutable_data();
    return {};
  }

  Status execute(LoadedVariant& l, const StepForm& form, StepPlan& step, SegmentPlan& plan, int index) {
    if (const auto* k = std::get_if<KernelLaunch>(form.step)) return launch(*k, step, plan);
    if (const auto* c = std::get_if<LibraryStep>(form.step)) return library(*c, form, step);
    if (const auto* c = std::get_if<CopyStep>(form.step)) return copy(l, *c);
    return host(l, std::get<HostStep>(*form.step), index);
  }

  Status launch(const KernelLaunch& k, const StepPlan& step, const SegmentPlan& plan) {
    if (step.grid <= 0) return {};
    for (size_t i = 0; i < k.buffers.size(); ++i) args_[i] = pointers_[static_cast<size_t>(k.buffers[i])];
    int32_t error = 0;
    struct Frame {
      HostKernelFn function;
      void* const* args;
      const int64_t* sizes;
      std::byte* const* scratch;
      int32_t* error;
    };
    Frame frame{k.function, args_.data(), plan.numbers.data() + step.sizes, worker_pointers_.data(), &error};
    options_.pool->parallel_for(step.grid, step.grain, [&frame](int64_t begin, int64_t end, int worker) {
      frame.function(frame.args, frame.sizes, begin, end, frame.scratch[worker], frame.error);
    });
    return error == 0 ? Status() : reported(k, error);
  }

  static Status reported(const KernelLaunch& k, int32_t error) {
    auto site = static_cast<size_t>(error - 1);
    Diagnostic d(ErrorCode::BadInput,
                 error > 0 && site < k.report_sites.size() ? k.report_sites[site] : "an index is out of range");
    d.note("found by kernel '" + k.name + "'");
    return d;
  }

  Status library(const LibraryStep& call, const StepForm& form, const StepPlan& step) {
    int32_t error = 0;
    std::atomic<int> failure{0};
    LibraryRun run;
    run.pool = options_.pool.get();
    run.pointers = pointers_.data();
    run.step_scratch = step_scratch_.data();
    run.worker_scratch = worker_pointers_.data();
    run.error = &error;
    run.failure = &failure;
    if (step.epilogue) {
      const auto& buffers = step.epilogue->buffers;
      for (size_t i = 0; i < buffers.size(); ++i) args_[i] = pointers_[static_cast<size_t>(buffers[i])];
      run.epilogue = step.epilogue.get();
      run.epilogue_args = args_.data();
    }
    step.library->run(run);
    if (failure.load() != 0)
      return Diagnostic(ErrorCode::DeviceError,
                        "oneDNN failed with status " + std::to_string(failure.load()) + " in '" + call.name + "'");
    return error == 0 ? Status() : reported(form.epilogue->source->kernel, error);
  }

  Status copy(const LoadedVariant& l, const CopyStep& c) {
    auto from = static_cast<size_t>(c.source), to = static_cast<size_t>(c.target);
    if (l.variant->exe->buffers[from].dtype == DType::String) {
      hold(to, value(l, c.source));
      give_held(l, c.target);
      return {};
    }
    if (bytes_[from] != bytes_[to]) return Diagnostic(ErrorCode::Internal, "copy '" + c.name + "': sizes differ");
    if (bytes_[to] == 0) return {};
    struct Frame {
      std::byte* to;
      const std::byte* from;
    } frame{static_cast<std::byte*>(pointers_[to]), static_cast<const std::byte*>(pointers_[from])};
    options_.pool->parallel_for(bytes_[to], 64 << 10, [&frame](int64_t begin, int64_t end, int) {
      std::memcpy(frame.to + begin, frame.from + begin, static_cast<size_t>(end - begin));
    });
    return {};
  }

  // ---- host steps
  // A buffer as a tensor: what is held, a constant, or a view of executor memory (whose owner marks it: it must not
  // outlive the run).
  Tensor value(const LoadedVariant& l, BufferId buffer) {
    auto id = static_cast<size_t>(buffer);
    const auto& info = l.variant->exe->buffers[id];
    if (info.kind == BufferInfo::Kind::Constant)
      return l.variant->exe->constants[static_cast<size_t>(info.constant)].value;
    if (info.kind == BufferInfo::Kind::Input)
      for (size_t i = 0; i < l.variant->inputs.size(); ++i)
        if (l.variant->inputs[i].binding->buffer == buffer) return *l.call.tensors[i];
    if (is_held_[id]) return held_[id];
    return Tensor::view(
        info.dtype, *dims_[id],
        Storage{our_memory_, static_cast<const std::byte*>(pointers_[id]), static_cast<size_t>(bytes_[id])});
  }

  Status host(LoadedVariant& l, const HostStep& step, int index) {
    std::vector<Tensor> operands;
    for (auto b : step.inputs) operands.push_back(b >= 0 ? value(l, b) : Tensor());
    std::unordered_map<uint64_t, int64_t> symbols;
    for (size_t i = 0; i < l.variant->slots.size(); ++i)
      if (l.call.bound[i]) symbols.emplace(l.variant->slots[i].symbol_id(), l.call.values[i]);
    auto results = step.run(operands, symbols);
    if (!results.ok()) {
      Diagnostic d = results.error();
      if (d.location == Location{}) d.location.node = step.name;
      return d;
    }
    if (results->size() < step.outputs.size())
      return Diagnostic(ErrorCode::Internal, "host step '" + step.name + "' (" + step.op + ") returned " +
                                                 std::to_string(results->size()) + " of " +
                                                 std::to_string(step.outputs.size()) + " results");
    host_results_ = std::move(*results);
    holding_ = true;
    return step.defines.empty() ? store_results(l, index) : Status();
  }

  // Binds the sizes that the host step of `index` defines.
  Status define(LoadedVariant& l, int index, int segment) {
    const auto& v = *l.variant;
    const auto& step = std::get<HostStep>(v.exe->steps[static_cast<size_t>(index)]);
    for (const auto& d : step.defines) {
      const auto& dims = host_results_[static_cast<size_t>(d.result)].dims();
      if (static_cast<size_t>(d.dim) >= dims.size())
        return Diagnostic(ErrorCode::Internal, "host step '" + step.name + "' (" + step.op +
                                                   ") returned a result of rank " + std::to_string(dims.size()));
      for (size_t i = 0; i < v.slots.size(); ++i)
        if (v.slots[i] == d.symbol && v.slot_segment[i] == segment) {
          l.call.values[i] = dims[static_cast<size_t>(d.dim)];
          l.call.bound[i] = true;
        }
    }
    return {};
  }

  Status store_results(LoadedVariant& l, int index) {
    const auto& exe = *l.variant->exe;
    const auto& step = std::get<HostStep>(exe.steps[static_cast<size_t>(index)]);
    for (size_t r = 0; r < step.outputs.size(); ++r) {
      if (step.outputs[r] < 0) continue;
      auto id = static_cast<size_t>(step.outputs[r]);
      auto& t = host_results_[r];
      const auto& info = exe.buffers[id];
      if (!t.defined() || t.dtype() != info.dtype || t.dims() != *dims_[id]) {
        std::string got(name(t.dtype()));
        for (auto d : t.dims()) got += " " + std::to_string(d);
        return Diagnostic(ErrorCode::Internal, "host step '" + step.name + "' (" + step.op + ") returned " + got +
                                                   " where " + std::string(name(info.dtype)) + str(info.shape) +
                                                   " was inferred");
      }
      if (info.kind == BufferInfo::Kind::Output && info.dtype != DType::String) {
        if (t.bytes() > 0) std::memcpy(pointers_[id], t.data(), t.bytes());
        continue;
      }
      // A result that shows memory of ours would change under its reader's eyes.
      if (t.owner() && t.owner() == our_memory_) {
        TESSERA_ASSIGN(auto own, Tensor::create(t.dtype(), t.dims()));
        if (t.bytes() > 0) std::memcpy(own.mutable_data(), t.data(), t.bytes());
        t = std::move(own);
      }
      hold(id, t);
      pointers_[id] = const_cast<std::byte*>(t.data());
      if (info.kind == BufferInfo::Kind::Output) give_held(l, step.outputs[r]);
    }
    host_results_.clear();
    return {};
  }

  void hold(size_t id, Tensor t) {
    held_[id] = std::move(t);
    is_held_[id] = holding_ = true;
  }
  void give_held(const LoadedVariant& l, BufferId buffer) {
    const auto& outputs = l.variant->exe->outputs;
    for (size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o].buffer == buffer) given_[o] = held_[static_cast<size_t>(buffer)];
  }

  ExecutorOptions options_;
  std::vector<std::shared_ptr<const Executable>> variants_;
  std::vector<std::unique_ptr<LoadedVariant>> loaded_;
  std::map<std::map<std::string, int64_t>, Diagnostic> failed_compiles_; // by sizes: not again on every call
  size_t max_kernel_buffers_ = 0, max_segments_ = 0, max_buffers_ = 0;

  std::vector<Block> arenas_; // per segment
  Block step_scratch_;
  std::vector<Block> worker_scratch_;
  std::vector<std::byte*> worker_pointers_;
  std::shared_ptr<const void> our_memory_ = std::make_shared<int>(0); // owner of views of executor memory
  int64_t arena_bytes_ = 0;

  // Of the run under way.
  RunStats* stats_ = nullptr;
  std::vector<void*> pointers_; // per buffer
  std::vector<void*> args_;
  std::vector<const Dims*> dims_;
  std::vector<int64_t> bytes_;
  std::vector<Tensor> held_; // results of host steps, and strings
  std::vector<bool> is_held_;
  bool holding_ = false;
  std::vector<Tensor> given_; // outputs
  std::vector<Tensor> host_results_;
};

} // namespace

Result<std::unique_ptr<Executor>> Executor::create(std::vector<std::shared_ptr<const Executable>> variants,
                                                   ExecutorOptions options) {
  if (variants.empty()) return Diagnostic(ErrorCode::Usage, "an executor needs at least one executable");
  auto executor = std::make_unique<ExecutorImpl>(std::move(options));
  for (auto& v : variants) {
    if (!v) return Diagnostic(ErrorCode::Usage, "an executable is missing");
    TESSERA_TRY(executor->add(std::move(v), executor->variants().size()));
  }
  return std::unique_ptr<Executor>(std::move(executor));
}

} // namespace tessera
