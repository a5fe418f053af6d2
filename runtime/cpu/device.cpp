// The host as a device: buffers are host memory, kernels are functions whose programs the thread pool runs.
#include "base/limits.h"
#include "base/stopwatch.h"
#include "runtime/caller_memory.h"
#include "runtime/cpu/chunk.h"
#include "runtime/cpu/plan.h"
#include "runtime/cpu/red_zones.h"
#include "runtime/library/onednn.h"
#include <cstring>
#include <sys/mman.h>
#include <sys/sysinfo.h>

namespace tessera {
namespace {

// The memory of the machine, swap included, in bytes.
int64_t machine_memory() {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return INT64_MAX;
  return static_cast<int64_t>((info.totalram + info.totalswap) * info.mem_unit);
}

// Memory that grows and is kept between runs; large blocks request huge pages.
class Block {
public:
  [[nodiscard]] Status reserve(int64_t bytes) {
    auto wanted = static_cast<size_t>(bytes);
    if (wanted <= bytes_) return {};
    release();
    wanted = (wanted + kPage - 1) / kPage * kPage;
    constexpr const char* kWhat = "intermediate results";
    TESSERA_TRY(account_->take(MemoryAccount::Where::Host, static_cast<int64_t>(wanted), kWhat));
    auto given = account_->has_functions() ? memory_of_caller(*account_, wanted, kPage, kWhat) : map(wanted, kWhat);
    if (!given.ok()) {
      account_->give(MemoryAccount::Where::Host, static_cast<int64_t>(wanted));
      return std::move(given).take_error();
    }
    data_ = *given;
    bytes_ = wanted;
    return {};
  }
  void release() {
    if (data_ == nullptr) return;
    if (account_->has_functions())
      account_->call_release(data_, bytes_);
    else
      ::munmap(data_, bytes_);
    account_->give(MemoryAccount::Where::Host, static_cast<int64_t>(bytes_));
    data_ = nullptr;
    bytes_ = 0;
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return bytes_; }
  explicit Block(std::shared_ptr<MemoryAccount> account) : account_(std::move(account)) {}
  Block(Block&& o) noexcept
      : account_(o.account_), data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  Block& operator=(Block&&) = delete;
  ~Block() { release(); }

private:
  static constexpr size_t kPage = 4096, kHuge = size_t{4} << 20;
  static Result<std::byte*> map(size_t bytes, const char* what) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return out_of_memory("cannot allocate " + std::to_string(bytes) + " bytes for " + what);
    if (bytes >= kHuge) (void)::madvise(p, bytes, MADV_HUGEPAGE);
    return static_cast<std::byte*>(p);
  }

  std::shared_ptr<MemoryAccount> account_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// The host's memory is everyone's.
class CpuInnerRuns final : public InnerRuns {
public:
  CpuInnerRuns(std::shared_ptr<ThreadPool> pool, std::shared_ptr<MemoryAccount> memory)
      : pool_(std::move(pool)), memory_(std::move(memory)) {}
  [[nodiscard]] ExecutorOptions options(ExecutorOptions outer) const override { return outer; }
  [[nodiscard]] void* stream() const override { return nullptr; }
  Result<std::shared_ptr<std::byte>> allocate(int64_t bytes) override {
    return memory_->allocate(static_cast<size_t>(bytes), "values of control flow");
  }
  Status move(void* to, const void* from, int64_t bytes) override {
    if (bytes <= 0 || to == from) return {};
    struct Frame {
      std::byte* to;
      const std::byte* from;
    } frame{static_cast<std::byte*>(to), static_cast<const std::byte*>(from)};
    pool_->parallel_for(bytes, 64 << 10, [&frame](int64_t begin, int64_t end, int) {
      std::memcpy(frame.to + begin, frame.from + begin, static_cast<size_t>(end - begin));
    });
    return {};
  }
  Status read(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return {};
  }
  Status write(void* to, const void* from, int64_t bytes) override { return read(to, from, bytes); }

private:
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<MemoryAccount> memory_;
};

class CpuKeptMemory final : public KeptMemory {
public:
  explicit CpuKeptMemory(std::shared_ptr<MemoryAccount> account) : account_(std::move(account)) {}
  Result<std::byte*> allocate(int64_t bytes) override {
    TESSERA_ASSIGN(auto block, account_->allocate(static_cast<size_t>(std::max<int64_t>(bytes, 1)), "states"));
    blocks_.push_back(std::move(block));
    return blocks_.back().get();
  }
  Status write(std::byte* to, const std::byte* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return {};
  }
  Status read(std::byte* to, const std::byte* from, int64_t bytes) override { return write(to, from, bytes); }

private:
  std::shared_ptr<MemoryAccount> account_;
  std::vector<std::shared_ptr<std::byte>> blocks_;
};

class CpuDevice final : public Device {
public:
  explicit CpuDevice(const ExecutorOptions& options)
      : pool_(options.pool), account_(options.memory), inner_(options.pool, options.memory), poison_(options.poison),
        step_scratch_(account_) {
    for (int w = 0; w < pool_->threads(); ++w) worker_scratch_.emplace_back(account_);
    worker_pointers_.resize(worker_scratch_.size());
  }

  Result<std::unique_ptr<LoadedCode>> add(const Variant& variant, BufferTable&) override {
    args_.resize(std::max(args_.size(), variant.max_kernel_pointers));
    while (arenas_.size() + 1 < variant.segment_begin.size()) arenas_.emplace_back(account_);
    products_ = products_ || std::any_of(variant.steps.begin(), variant.steps.end(), [](const StepForm& form) {
                  const auto* library = std::get_if<LibraryStep>(form.step);
                  return library && std::holds_alternative<MatmulCall>(library->call);
                });
    auto loaded = std::make_unique<LoadedCode>();
    loaded->constants_in_place = true;
    return loaded;
  }
  Status choose(const Variant&, int, const Variant::CallState&, bool, SegmentPlan&) override { return {}; }
  Result<int64_t> resident_programs(LoadedCode&, const KernelLaunch&) override { return 0; }
  Status plan(const Variant& variant, LoadedCode&, int segment, const Variant::CallState& call,
              SegmentPlan& plan) override {
    return plan_cpu_calls(variant, segment, call, plan, *pool_, account_);
  }
  [[nodiscard]] int64_t alignment() const override { return kArenaAlignment; }
  [[nodiscard]] int workers() const override { return pool_->threads(); }
  [[nodiscard]] int64_t red_zone() const override { return poison_ ? RedZones::kBytes : 0; }
  [[nodiscard]] int64_t memory() const override { return memory_; }

  Status around(const std::function<void()>& body) override {
    // Before there are helpers, each of which takes 64 MB of address space when it first allocates something.
    if (products_) TESSERA_TRY(generate_product_code());
    pool_->region(body);
    return {};
  }

  Status begin(const DeviceCall& call) override {
    if (call.on_device)
      return Diagnostic(ErrorCode::Usage, "the executable is for the host: there is no device memory to run on");
    variant_ = &call.variant;
    table_ = &call.table;
    stats_ = &call.stats;
    sizes_ = &call.sizes;
    changes_ = call.changes;
    marks_.clear();
    std::copy(variant_->constant_pointers.begin(), variant_->constant_pointers.end(), table_->pointers.begin());
    for (size_t i = 0; i < call.inputs.size(); ++i)
      pointer(variant_->inputs[i].binding->buffer) = const_cast<std::byte*>(call.inputs[i]->data());
    return {};
  }

  Status enter(int segment, const SegmentPlan& plan) override {
    if (auto needed = plan.arena_bytes + plan.step_scratch + plan.worker_scratch * workers(); needed > memory_)
      return Diagnostic(ErrorCode::OutOfMemory, "this shape needs " + std::to_string(needed) +
                                                    " bytes for intermediate results, the machine has " +
                                                    std::to_string(memory_));
    auto& arena = arenas_[static_cast<size_t>(segment)];
    TESSERA_TRY(arena.reserve(plan.arena_bytes));
    TESSERA_TRY(step_scratch_.reserve(plan.step_scratch + red_zone()));
    for (size_t w = 0; w < worker_scratch_.size(); ++w) {
      TESSERA_TRY(worker_scratch_[w].reserve(plan.worker_scratch + red_zone()));
      worker_pointers_[w] = worker_scratch_[w].data();
    }
    for (const auto& place : plan.places)
      if (place.in < 0) pointer(place.buffer) = arena.data() + place.offset;
    if (poison_ && plan.arena_bytes > 0) std::memset(arena.data(), 0xFF, static_cast<size_t>(plan.arena_bytes));
    plan_ = &plan;
    return {};
  }

  Status place_outputs(int segment, std::span<Tensor> outputs) override {
    for (size_t o = 0; o < outputs.size(); ++o) {
      auto id = variant_->exe->outputs[o].buffer;
      auto b = static_cast<size_t>(id);
      if (variant_->output_segment[o] != segment || !has_bytes(outputs[o].dtype())) continue;
      if (poison_ && table_->bytes[b] > 0)
        std::memset(outputs[o].mutable_data(), 0xFF, static_cast<size_t>(table_->bytes[b]));
      pointer(id) = outputs[o].mutable_data();
    }
    return {};
  }

  Status execute(int index, const StepForm& form, const StepPlan& step, DevicePlan* device) override {
    if (!poison_) return start(index, form, step, device);
    arm(*form.step);
    auto status = start(index, form, step, device);
    auto whole = zones_.check(name_of(*form.step));
    if (!status.ok()) return status;
    return whole;
  }

  Status start(int index, const StepForm& form, const StepPlan& step, DevicePlan* device) {
    if (std::holds_alternative<KernelLaunch>(*form.step)) return launch(step);
    if (const auto* c = std::get_if<CopyStep>(form.step)) return copy(*c);
    auto& plan = static_cast<CpuPlan&>(*device);
    return library(form, plan.steps[static_cast<size_t>(index - plan.first_step)]);
  }

  Result<Tensor> fetch(BufferId buffer) override {
    auto id = static_cast<size_t>(buffer);
    return Tensor::view(variant_->exe->buffers[id].dtype, *table_->dims[id],
                        Storage{our_memory_, static_cast<const std::byte*>(table_->pointers[id]),
                                static_cast<size_t>(table_->bytes[id])});
  }

  Result<bool> store(BufferId buffer, Tensor& value) override {
    auto id = static_cast<size_t>(buffer);
    if (variant_->exe->buffers[id].kind == BufferInfo::Kind::Output) {
      if (value.bytes() > 0) std::memcpy(table_->pointers[id], value.data(), value.bytes());
      return true;
    }
    // A result that shows memory of ours would change under its reader's eyes.
    if (value.owner() && value.owner() == our_memory_) {
      TESSERA_ASSIGN(auto own, Tensor::create(value.dtype(), value.dims()));
      if (value.bytes() > 0) std::memcpy(own.mutable_data(), value.data(), value.bytes());
      value = std::move(own);
    }
    table_->pointers[id] = const_cast<std::byte*>(value.data());
    return false;
  }

  InnerRuns& inner() override { return inner_; }

  Status mark() override {
    marks_.push_back(host_clock_ms());
    return {};
  }
  Status finish(std::span<Tensor> outputs) override {
    for (size_t o = 0; o < outputs.size(); ++o) {
      const BufferId id = variant_->exe->outputs[o].buffer;
      if (has_bytes(outputs[o].dtype()))
        TESSERA_TRY(inner_.move(outputs[o].mutable_data(), pointer(id), table_->bytes[static_cast<size_t>(id)]));
    }
    for (size_t s = 0; s < stats_->steps.size() && 2 * s + 1 < marks_.size(); ++s) {
      stats_->steps[s].begin_ms = marks_[2 * s];
      stats_->steps[s].ms = marks_[2 * s + 1] - marks_[2 * s];
    }
    for (StateValue& state : changes_) std::swap(state.value, state.next);
    return {};
  }
  void abandon() override {}
  Status wait() override { return {}; }
  KeptMemory& kept() override { return kept_; }
  Status trim() override {
    for (auto* blocks : {&arenas_, &worker_scratch_})
      for (Block& block : *blocks) block.release();
    step_scratch_.release();
    return {};
  }

private:
  // A step may touch the temporaries of the arenas that it uses, and the scratch memory that the plan requested.
  void arm(const Step& step) {
    zones_.clear();
    for (auto& arena : arenas_) zones_.close(arena.data(), arena.size());
    auto used = buffers_of(step);
    for (const auto* ids : {&used.read, &used.written})
      for (auto id : *ids) {
        auto b = static_cast<size_t>(id);
        if (variant_->exe->buffers[b].kind != BufferInfo::Kind::Temporary || !in_arena(table_->pointers[b])) continue;
        auto* begin = static_cast<std::byte*>(table_->pointers[b]);
        zones_.allow(begin, static_cast<size_t>(table_->bytes[b]));
        zones_.guard(begin + table_->bytes[b]);
      }
    zones_.guard(step_scratch_.data() + plan_->step_scratch);
    for (auto& scratch : worker_scratch_) zones_.guard(scratch.data() + plan_->worker_scratch);
    zones_.arm();
  }
  [[nodiscard]] bool in_arena(const void* p) const {
    return std::any_of(arenas_.begin(), arenas_.end(),
                       [&](const Block& arena) { return p >= arena.data() && p < arena.data() + arena.size(); });
  }

  void*& pointer(BufferId id) { return table_->pointers[static_cast<size_t>(id)]; }

  Status launch(const StepPlan& step) {
    const auto& launch = step.launch;
    if (launch.grid <= 0) return {};
    const auto& k = *step.kernel;
    for (size_t i = 0; i < k.buffers.size(); ++i) args_[i] = pointer(k.buffers[i]);
    place_shared(step);
    IndexReport report;
    struct Frame {
      HostKernelFn function;
      void* const* args;
      const int64_t* sizes;
      std::byte* const* scratch;
      IndexReport* report;
    };
    Frame frame{k.function, args_.data(), launch.sizes.data(), worker_pointers_.data(), &report};
    const int64_t grain = std::max<int64_t>(1, kElementsPerChunk / std::max<int64_t>(launch.work_per_program, 1));
    pool_->parallel_for(launch.grid, grain, [&frame](int64_t begin, int64_t end, int worker) {
      frame.function(frame.args, frame.sizes, begin, end, frame.scratch[worker], frame.report);
    });
    return report.any() ? bad_index(k, report, variant_->symbol_values(sizes_->values, sizes_->bound)) : Status();
  }

  // Memory that programs share: one step runs at a time.
  void place_shared(const StepPlan& step) {
    if (step.launch.workspaces.empty() && step.launch.counters == 0) return;
    size_t argument = step.kernel->buffers.size();
    std::byte* at = step_scratch_.data();
    for (const auto& w : step.launch.workspaces) {
      args_[argument++] = at;
      at += aligned(w.bytes());
    }
    if (poison_) std::memset(step_scratch_.data(), 0xFF, static_cast<size_t>(at - step_scratch_.data()));
    args_[argument] = at;
    std::memset(at, 0, static_cast<size_t>(step.launch.counters) * sizeof(uint32_t));
  }

  Status library(const StepForm& form, const CpuStep& step) {
    IndexReport report;
    std::atomic<int> failure{0};
    LibraryRun run;
    run.pool = pool_.get();
    run.pointers = table_->pointers.data();
    run.step_scratch = step_scratch_.data();
    run.worker_scratch = worker_pointers_.data();
    run.report = &report;
    run.failure = &failure;
    if (step.epilogue) {
      const auto& buffers = step.epilogue->buffers;
      for (size_t i = 0; i < buffers.size(); ++i) args_[i] = pointer(buffers[i]);
      run.epilogue = step.epilogue.get();
      run.epilogue_args = args_.data();
    }
    step.library->run(run);
    if (failure.load() != 0) return library_error(failure.load(), name_of(*form.step));
    if (!report.any()) return {};
    return bad_index(form.epilogue->source->kernel, report, variant_->symbol_values(sizes_->values, sizes_->bound));
  }

  Status copy(const CopyStep& c) {
    return inner_.move(pointer(c.target), pointer(c.source), table_->bytes[static_cast<size_t>(c.target)]);
  }

  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<MemoryAccount> account_;
  CpuInnerRuns inner_;
  bool poison_;
  bool products_ = false; // a variant calls dnnl_sgemm
  RedZones zones_;        // with poison_
  int64_t memory_ = machine_memory();
  CpuKeptMemory kept_{account_};
  std::vector<Block> arenas_; // per segment
  Block step_scratch_;
  std::vector<Block> worker_scratch_;
  std::vector<std::byte*> worker_pointers_;
  std::shared_ptr<const void> our_memory_ = std::make_shared<int>(0); // owner of views of executor memory

  // The current run:
  const Variant* variant_ = nullptr;
  BufferTable* table_ = nullptr;
  RunStats* stats_ = nullptr;
  const Variant::CallState* sizes_ = nullptr;
  const SegmentPlan* plan_ = nullptr;
  std::span<StateValue> changes_;
  std::vector<void*> args_;
  std::vector<double> marks_; // host_clock_ms(), before and behind every step
};

} // namespace

Diagnostic bad_index(const KernelLaunch& kernel, const IndexReport& report,
                     const std::unordered_map<uint64_t, int64_t>& sizes) {
  const auto site = static_cast<size_t>(report.site());
  const IndexCheck check = site < kernel.report_sites.size() ? kernel.report_sites[site] : IndexCheck();
  Diagnostic d(ErrorCode::BadInput, index_error(check, report.position(), report.value(), sizes));
  d.note("found by kernel '" + kernel.name + "'");
  return d;
}

Result<std::unique_ptr<Device>> make_cpu_device(const ExecutorOptions& options) {
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(options));
}

} // namespace tessera
