#include "graph/support/guarded.h"
#include "graph/support/in_use.h"
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"
#include "runtime/cuda/nvtx.h"
#include "runtime/loaded_variant.h"
#include "runtime/memory_account.h"
#include <algorithm>

namespace tessera {
namespace {

class ExecutorImpl final : public Executor {
public:
  ExecutorImpl(ExecutorOptions options, std::unique_ptr<Device> device, bool on_gpu)
      : options_(std::move(options)), device_(std::move(device)), on_gpu_(on_gpu) {}

  Status add(std::shared_ptr<const Executable> executable, size_t at) {
    return inside("adding a variant", [&] { return join(std::move(executable), at); });
  }

  Result<std::vector<Tensor>> run(const std::map<std::string, Tensor>& inputs, RunStats* stats,
                                  std::vector<Tensor>* outputs) override {
    return guarded("running the model", [&]() -> Result<std::vector<Tensor>> {
      TESSERA_ASSIGN(auto alone, use_alone());
      std::vector<const Tensor*> ordered;
      TESSERA_TRY(in_order(inputs, ordered));
      return use_variant(alone, ordered, Running{*this, {outputs, nullptr, false, nullptr, profiles(stats), waits()}},
                         stats);
    });
  }

  Status call(std::span<const DeviceTensor> inputs, const OutputAllocator& outputs, void* stream,
              RunStats* stats) override {
    return guarded("running the model", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      TESSERA_TRY(show_inputs(inputs));
      TESSERA_TRY(use_variant(alone, shown_inputs_,
                              Running{*this, {nullptr, &outputs, on_gpu_, stream, profiles(stats), waits()}}, stats));
      return {};
    });
  }

  Status run_on_device(const std::map<std::string, DeviceTensor>& inputs, std::span<const DeviceTensor> outputs,
                       void* stream, RunStats* stats) override {
    return guarded("running the model", [&]() -> Status {
      TESSERA_ASSIGN(auto in, shown(inputs));
      std::vector<Tensor> out;
      for (const auto& t : outputs) {
        TESSERA_ASSIGN(auto view, shown(t));
        out.push_back(std::move(view));
      }
      TESSERA_ASSIGN(auto alone, use_alone());
      std::vector<const Tensor*> ordered;
      TESSERA_TRY(in_order(in, ordered));
      TESSERA_TRY(
          use_variant(alone, ordered, Running{*this, {&out, nullptr, true, stream, profiles(stats), waits()}}, stats));
      return {};
    });
  }

  Result<std::vector<DeviceTensor>> output_sizes(const std::map<std::string, DeviceTensor>& inputs,
                                                 RunStats* stats) override {
    return guarded("finding the outputs' sizes", [&]() -> Result<std::vector<DeviceTensor>> {
      auto typed = inputs;
      static std::byte never_read{};
      for (auto& input : typed) input.second.data = &never_read;
      TESSERA_ASSIGN(auto in, shown(typed));
      std::vector<DeviceTensor> sizes;
      TESSERA_ASSIGN(auto alone, use_alone());
      std::vector<const Tensor*> ordered;
      TESSERA_TRY(in_order(in, ordered));
      TESSERA_TRY(use_variant(
          alone, ordered,
          [&](LoadedVariant& l) -> LoadedVariant::Outcome {
            auto known = l.output_sizes();
            if (!known.ok()) return Result<std::vector<Tensor>>(std::move(known).take_error());
            sizes = std::move(*known);
            return Result<std::vector<Tensor>>(std::vector<Tensor>());
          },
          stats));
      return sizes;
    });
  }

  Status wait() override {
    return inside("waiting for the device", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      TESSERA_TRY(device_->wait());
      for (auto& l : loaded_) TESSERA_TRY(l->wait());
      return {};
    });
  }

  // A GPU's graph is recorded at the second call that finds its plan.
  Status warm_up(const std::map<std::string, Tensor>& inputs, RunStats* stats) override {
    constexpr int kMost = 8, kAfterPlan = 1;
    warming_up_ = true;
    struct Warm {
      bool& flag;
      ~Warm() { flag = false; }
    } const warm{warming_up_};
    RunStats own;
    RunStats& s = stats ? *stats : own;
    RunStats later; // `stats` are the first run's, which does most
    for (int i = 0, since_plan = 0; i < kMost && since_plan <= (on_gpu_ ? kAfterPlan : 0); ++i) {
      RunStats& its = i == 0 ? s : later;
      if (auto ran = run(inputs, &its, nullptr); !ran.ok()) return std::move(ran).take_error();
      TESSERA_TRY(wait());
      since_plan = its.new_shape ? 1 : since_plan + 1;
    }
    return {};
  }

  Status trim() override {
    return inside("giving memory back", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      return give_back();
    });
  }

  [[nodiscard]] const std::vector<std::shared_ptr<const Executable>>& variants() const override { return variants_; }
  [[nodiscard]] int64_t arena_bytes() const override { return arena_bytes_; }
  Status add_variant(std::shared_ptr<const Executable> executable, size_t at) override {
    if (!executable) return Diagnostic(ErrorCode::Usage, "an executable is missing");
    TESSERA_ASSIGN(auto alone, use_alone());
    return add(std::move(executable), std::min(at, loaded_.size() - 1));
  }
  Status remove_variant(const Executable& executable) override {
    TESSERA_ASSIGN(auto alone, use_alone());
    return inside("removing a variant", [&]() -> Status {
      const auto found =
          std::find_if(variants_.begin(), variants_.end(), [&](const auto& v) { return v.get() == &executable; });
      if (found == variants_.end() || found + 1 == variants_.end())
        return Diagnostic(ErrorCode::Usage, "the executor has no such variant besides its last, generic one");
      const auto at = found - variants_.begin();
      ran_ = nullptr;
      TESSERA_TRY(loaded_[static_cast<size_t>(at)]->wait());
      loaded_.erase(loaded_.begin() + at);
      variants_.erase(found);
      return {};
    });
  }

private:
  static constexpr size_t kMaxVariants = 16, kMaxFailures = 64;
  static constexpr int kMaxCompiles = 8;     // in one call: values that are read on the way may each refute a guess
  static constexpr int kMaxReplacements = 3; // in one call, of variants with calls that libraries refuse

  static Result<Tensor> shown(const DeviceTensor& t) {
    if (!has_bytes(t.dtype))
      return Diagnostic(ErrorCode::UnsupportedType, std::string(name(t.dtype)) + "s are no device memory");
    TESSERA_ASSIGN(auto count, element_count(t.dims));
    auto bytes = static_cast<size_t>(byte_size(t.dtype, count));
    return Tensor::view(t.dtype, t.dims, Storage{nullptr, static_cast<const std::byte*>(t.data), bytes});
  }
  // The inputs of a call as tensors, in shown_inputs_. Most calls give most inputs (weights) as the call before did.
  Status show_inputs(std::span<const DeviceTensor> inputs) {
    if (views_.size() != inputs.size()) {
      shown_inputs_.clear();
      views_.assign(inputs.size(), Tensor());
      for (const Tensor& t : views_) shown_inputs_.push_back(&t);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const DeviceTensor& t = inputs[i];
      Tensor& view = views_[i];
      if (view.defined() && view.data() == t.data && view.dtype() == t.dtype && view.dims() == t.dims) continue;
      view = Tensor(); // if this one fails, it is not the next call's
      TESSERA_ASSIGN(view, shown(t));
    }
    return {};
  }
  static Result<std::map<std::string, Tensor>> shown(const std::map<std::string, DeviceTensor>& tensors) {
    std::map<std::string, Tensor> views;
    for (const auto& [name, t] : tensors) {
      TESSERA_ASSIGN(auto view, shown(t));
      views.emplace(name, std::move(view));
    }
    return views;
  }

  // What touches the device. Exceptions end here.
  template <class Body>
  Status inside(const Doing& doing, const Body& body) {
    return guarded(doing, [&]() -> Status {
      Status outcome;
      TESSERA_TRY(device_->around([&] { outcome = body(); }));
      return outcome;
    });
  }

  [[nodiscard]] bool waits() const { return options_.wait_for_plans || warming_up_; }
  [[nodiscard]] bool profiles(const RunStats* stats) const { return options_.profile && stats != nullptr; }

  Result<InUse::Guard> use_alone() {
    return in_use_.begin("the executor", "each thread takes an executor of its own: Session::new_executor()");
  }

  // What use_variant() does with the variant that fits.
  struct Running {
    ExecutorImpl& self;
    CallArguments arguments;
    LoadedVariant::Outcome operator()(LoadedVariant& l) const {
      const NamedRange range(self.options_.ranges.get(), l.variant().exe->model_name);
      auto done = l.run(arguments, *self.stats_);
      // What other shapes left behind goes before a call is refused; not where that would request the caller's memory twice.
      if (self.options_.memory->limit() != 0 && arguments.allocator == nullptr && lacks_memory(done) &&
          self.give_back().ok())
        done = l.run(arguments, *self.stats_);
      self.ran_ = &l;
      self.arena_bytes_ = l.arena_bytes();
      return done;
    }
  };

  static bool lacks_memory(const LoadedVariant::Outcome& done) {
    const auto* result = std::get_if<Result<std::vector<Tensor>>>(&done);
    return result && !result->ok() && result->error().code == ErrorCode::OutOfMemory;
  }

  // Inside of around(): what earlier calls have left behind, weights excepted.
  Status give_back() {
    TESSERA_TRY(device_->wait());
    for (auto& l : loaded_) {
      TESSERA_TRY(l->wait());
      l->trim();
    }
    return device_->trim();
  }

  // All variants have the inputs of the last, generic one: join() sees to it. The executor is used alone.
  Status in_order(const std::map<std::string, Tensor>& inputs, std::vector<const Tensor*>& ordered) {
    ordered.reserve(inputs.size());
    return loaded_.back()->variant().in_order(inputs, ordered);
  }

  template <class Use>
  Result<std::vector<Tensor>> use_variant(const InUse::Guard&, std::span<const Tensor* const> inputs, const Use& use,
                                          RunStats* stats) {
    RunStats local;
    stats_ = stats ? stats : &local;
    *stats_ = RunStats{};
    stats_->begin_ms = host_clock_ms();
    profiling_ = profiles(stats);
    std::vector<Tensor> outputs;
    ran_ = nullptr;
    if (options_.observer) options_.observer->begins();
    Choice choice;
    choice.may_compile = options_.recompile ? kMaxCompiles : 0;
    struct Frame {
      ExecutorImpl* self;
      std::span<const Tensor* const> inputs;
      const Use& use;
      Choice& choice;
      std::vector<Tensor>& outputs;
      bool renews;
      Status run() const {
        if (renews) self->renew();
        TESSERA_ASSIGN(outputs, self->choose_and_use(inputs, use, choice));
        return {};
      }
    };
    Frame frame{this, inputs, use, choice, outputs, options_.observer != nullptr};
    Status outcome = inside("running the model", [&frame] { return frame.run(); });
    while (outcome.ok() && choice.wanted) {
      // Outside of around(): a compile must keep neither the thread pool nor the device from other executors.
      outcome = recompile(inputs, choice);
      frame.renews = false;
      if (outcome.ok()) outcome = inside("running the model", [&frame] { return frame.run(); });
    }
    for (auto& l : loaded_) l->let_go();
    if (options_.observer) tell_observer();
    stats_->total_ms = host_clock_ms() - stats_->begin_ms;
    stats_ = nullptr;
    TESSERA_TRY(std::move(outcome));
    return outputs;
  }

  // Inside of around().
  Status join(std::shared_ptr<const Executable> executable, size_t at) {
    if (is_gpu_target(executable->target) != on_gpu_)
      return Diagnostic(ErrorCode::Usage,
                        "the variants of one executor are for one device; one is for '" + executable->target + "'");
    auto same_name = [](const Binding& a, const Binding& b) { return a.name == b.name; };
    if (!variants_.empty() && !std::equal(executable->inputs.begin(), executable->inputs.end(),
                                          variants_.back()->inputs.begin(), variants_.back()->inputs.end(), same_name))
      return Diagnostic(ErrorCode::Usage, "the variants of one executor have the same inputs in the same order");
    TESSERA_ASSIGN(auto loaded, LoadedVariant::create(executable, *device_, options_));
    loaded_.reserve(loaded_.size() + 1); // both or none
    variants_.reserve(variants_.size() + 1);
    loaded_.insert(loaded_.begin() + static_cast<std::ptrdiff_t>(at), std::move(loaded));
    variants_.insert(variants_.begin() + static_cast<std::ptrdiff_t>(at), std::move(executable));
    return {};
  }

  // ---- better code for the same variants
  // Inside of around(), before a call.
  void renew() {
    std::erase_if(retired_, [](const Retired& r) { return r.successor_ran; });
    const uint64_t now = options_.observer->generation();
    if (now == generation_) return;
    for (size_t i = 0; i < variants_.size(); ++i) {
      auto successor = options_.observer->successor(*variants_[i]);
      if (!successor) continue;
      auto loaded = is_gpu_target(successor->target) == on_gpu_
                        ? LoadedVariant::create(successor, *device_, options_)
                        : Diagnostic(ErrorCode::Internal, "a variant's successor is for another device");
      if (!loaded.ok()) { // the old one does
        TESSERA_LOGF(LogChannel::Recompiles, "a variant is not replaced: " + loaded.error().str());
        continue;
      }
      // The old one goes when the new one has run: until then nothing else may hold the weights on the device.
      retired_.reserve(retired_.size() + 1);
      retired_.push_back({std::exchange(loaded_[i], std::move(*loaded)), successor.get()});
      variants_[i] = std::move(successor);
      ++stats_->renewals;
    }
    generation_ = now;
  }

  void tell_observer() {
    if (!ran_) return options_.observer->ended(nullptr, {}, {});
    for (Retired& r : retired_) r.successor_ran = r.successor_ran || r.successor == ran_->variant().exe;
    const Variant& v = ran_->variant();
    const auto inputs =
        static_cast<size_t>(std::find_if(v.slot_segment.begin(), v.slot_segment.end(), [](int s) { return s > 0; }) -
                            v.slot_segment.begin());
    options_.observer->ended(v.owner, std::span(v.slots).first(inputs), std::span(ran_->call.values).first(inputs));
  }

  // ---- which variant
  struct Refusal {
    Diagnostic error;
    bool miss = false;
    GuardMiss guard;
  };
  // Nothing: the variant fits.
  std::optional<Refusal> refusal(LoadedVariant& l, std::span<const Tensor* const> inputs) {
    std::vector<HostPhase>* phases = profiling_ ? &stats_->phases : nullptr;
    {
      const PhaseTimer timer(phases, "bind");
      if (auto s = l.variant().bind(inputs, l.call); !s.ok()) return Refusal{s.error(), false, {}};
    }
    const PhaseTimer timer(phases, "guards");
    int g = l.variant().guards.check(l.call.values, l.call.bound, l.call.guards);
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
    r.guard = l.variant().guards.explain(guard, l.call.values, l.call.bound);
    r.miss = !l.variant().guards.required(guard);
    r.error = Diagnostic(ErrorCode::GuardFailed, "the inputs do not satisfy " + r.guard.guard + " (" + r.guard.reason +
                                                     "): " + text_of(r.guard.sizes));
    for (const SymExpr& symbol : l.variant().guards.guard(guard).condition.symbols()) {
      std::string places;
      for (const auto& input : l.variant().exe->inputs) {
        const auto& shape = l.variant().exe->buffers[static_cast<size_t>(input.buffer)].shape;
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

  static GuardMiss refused_calls(const LoadedVariant& l, const RefusedCalls& calls) {
    GuardMiss miss;
    miss.reason = calls.error.message;
    for (size_t s = 0; s < l.variant().slots.size(); ++s)
      if (l.call.bound[s]) miss.sizes.emplace(l.variant().slots[s].symbol_name(), l.call.values[s]);
    miss.refused_in = l.variant().owner;
    miss.refused = calls.steps;
    return miss;
  }

  void record(size_t variant, const Refusal& r) {
    if (!r.miss) return;
    stats_->misses.push_back(r.guard);
    if (log_enabled(LogChannel::Guards))
      log_write(LogChannel::Guards, "variant " + std::to_string(variant) + " missed: " + r.error.message);
  }

  // How far a call has got in choosing its variant.
  struct Choice {
    size_t i = 0; // the variant that is tried
    int may_compile = 0, replacements = 0;
    std::optional<Refusal> last;
    std::optional<GuardMiss> best_miss;
    // A variant that is to be compiled and to stand at `i`, before choosing goes on there.
    std::optional<GuardMiss> wanted;
    std::optional<Diagnostic> or_error; // where it cannot be had
    bool or_next = false;               // where it cannot be had: variant i is done with
  };

  // `use`: of the first variant that fits, LoadedVariant::Outcome of it. Where `choice` wants a variant afterwards, there
  // is no result yet: it is called again after recompile().
  template <class Use>
  Result<std::vector<Tensor>> choose_and_use(std::span<const Tensor* const> inputs, const Use& use, Choice& choice) {
    auto& [i, may_compile, replacements, last, best_miss, wanted, or_error, or_next] = choice;
    for (; i < loaded_.size(); ++i) {
      // Before falling to the generic variant: one compiled for these sizes, when that is wanted.
      const bool generic = i + 1 == loaded_.size();
      if (generic && best_miss && may_compile > 0) {
        // Inputs that no variant can take are an error, not a reason to compile.
        if (auto hard = refusal(*loaded_[i], inputs); hard && !hard->miss) return std::move(hard->error);
        --may_compile;
        wanted = std::exchange(best_miss, std::nullopt);
        return std::vector<Tensor>();
      }
      auto refused = refusal(*loaded_[i], inputs);
      if (!refused) {
        stats_->variant = static_cast<int>(i);
        LoadedVariant::Outcome done = use(*loaded_[i]);
        if (auto* r = std::get_if<Result<std::vector<Tensor>>>(&done)) return std::move(*r);
        std::optional<BodyMiss> without; // library calls that are refused, of the variant or of a body
        if (auto* r = std::get_if<RefusedCalls>(&done))
          without = BodyMiss{r->error, refused_calls(*loaded_[i], *r)};
        else if (auto* b = std::get_if<BodyMiss>(&done); b && !b->miss.refused.empty())
          without = std::move(*b);
        if (without) {
          // Another variant that does without these calls stands before this one from now on.
          stats_->misses.push_back(without->miss);
          if (++replacements > kMaxReplacements || !options_.recompile) return std::move(without->error);
          wanted = std::move(without->miss);
          or_error = std::move(without->error);
          return std::vector<Tensor>();
        }
        if (auto* b = std::get_if<BodyMiss>(&done)) {
          refused = Refusal{std::move(b->error), true, std::move(b->miss)};
        } else {
          refused = refused_by(*loaded_[i], std::get<MidRunMiss>(done).guard);
          if (!refused->miss) return std::move(refused->error);
        }
      }
      // Sizes that a specialised variant does not take are a miss like any other.
      if (!generic && refused->error.code == ErrorCode::BadInput) {
        refused->miss = true;
        refused->guard.guard = refused->error.message;
        refused->guard.reason = "sizes that the variant was compiled for";
      }
      record(i, *refused);
      // Of several misses, one that says more of the call: what a variant read before it missed.
      if (refused->miss && (!best_miss || best_miss->sizes.size() < refused->guard.sizes.size()))
        best_miss = refused->guard;
      last = std::move(refused);
      // The generic variant missed a guard itself: the last resort is to compile.
      if (generic && last->miss && may_compile > 0) {
        --may_compile;
        best_miss.reset(); // it is answered now
        wanted = last->guard;
        or_next = true;
        return std::vector<Tensor>();
      }
    }
    Diagnostic error = last->error;
    if (!last->miss) return error;
    if (auto failed = failed_compiles_.find(last->guard.sizes); failed != failed_compiles_.end())
      error.note("compiling a variant for these sizes failed: " + failed->second.str());
    else if (!options_.recompile)
      error.note("no other variant fits, and recompilation is off");
    else if (loaded_.size() >= kMaxVariants)
      error.note("the limit of " + std::to_string(kMaxVariants) + " variants is reached");
    else
      error.note("compiling another variant did not help");
    return error;
  }

  // What the choice wants, and where it goes on. Errors: OutOfMemory; that of the choice where there is no such variant.
  Status recompile(std::span<const Tensor* const> inputs, Choice& choice) {
    const GuardMiss miss = *std::exchange(choice.wanted, std::nullopt);
    const auto or_error = std::exchange(choice.or_error, std::nullopt);
    const bool or_next = std::exchange(choice.or_next, false);
    TESSERA_ASSIGN(const bool compiled, recompile(inputs, miss, choice.i));
    if (!compiled && or_error) return *or_error;
    if (!compiled && or_next) ++choice.i;
    return {};
  }

  // True: a new variant stands at `at`. Error OutOfMemory; any other failure is remembered.
  Result<bool> recompile(std::span<const Tensor* const> inputs, const GuardMiss& miss, size_t at) {
    if (loaded_.size() >= kMaxVariants) {
      TESSERA_LOGF(LogChannel::Recompiles,
                   "not compiling: the limit of " + std::to_string(kMaxVariants) + " variants is reached");
      return false;
    }
    if (failed_compiles_.contains(miss.sizes)) {
      TESSERA_LOGF(LogChannel::Recompiles, "not compiling: it failed before for " + text_of(miss.sizes));
      return false;
    }
    const Stopwatch watch;
    std::map<std::string, Dims> shapes;
    const auto& names = variants_.back()->inputs;
    for (size_t i = 0; i < inputs.size(); ++i) shapes.emplace(names[i].name, inputs[i]->dims());
    auto compiled = options_.recompile(shapes, miss);
    if (compiled.ok() && !*compiled) return false;
    Status added = compiled.ok() ? add(*compiled, at) : Status();
    double ms = watch.ms();
    stats_->recompile_ms += ms;
    const std::string why = (miss.refused.empty() ? miss.guard + " did not hold"
                                                  : std::to_string(miss.refused.size()) +
                                                        " library calls are not computed by the device's libraries") +
                            " (" + miss.reason + ") for " + text_of(miss.sizes);
    if (!compiled.ok() || !added.ok()) {
      const Diagnostic& error = compiled.ok() ? added.error() : compiled.error();
      if (error.code == ErrorCode::OutOfMemory) return error;
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

  InUse in_use_;
  bool warming_up_ = false;
  ExecutorOptions options_;
  std::unique_ptr<Device> device_;
  bool on_gpu_;
  std::vector<std::shared_ptr<const Executable>> variants_;
  std::vector<std::unique_ptr<LoadedVariant>> loaded_;                   // destroyed before the device
  std::map<std::map<std::string, int64_t>, Diagnostic> failed_compiles_; // by sizes: not again on every call
  struct Retired {
    std::unique_ptr<LoadedVariant> loaded;
    const Executable* successor;
    bool successor_ran = false;
  };
  std::vector<Retired> retired_; // replaced variants
  uint64_t generation_ = 0;      // of the observer, at the last query
  int64_t arena_bytes_ = 0;
  // Of the current call:
  RunStats* stats_ = nullptr;
  bool profiling_ = false;
  LoadedVariant* ran_ = nullptr;
  std::vector<Tensor> views_;               // inputs of the last call by position; the memory is the caller's
  std::vector<const Tensor*> shown_inputs_; // to views_
};

} // namespace

Result<std::unique_ptr<Executor>> Executor::create(std::vector<std::shared_ptr<const Executable>> variants,
                                                   ExecutorOptions options) {
  return guarded("making an executor", [&]() -> Result<std::unique_ptr<Executor>> {
    if (variants.empty()) return Diagnostic(ErrorCode::Usage, "an executor needs at least one executable");
    for (const auto& v : variants)
      if (!v) return Diagnostic(ErrorCode::Usage, "an executable is missing");
    if (!options.pool) options.pool = ThreadPool::create();
    if (!options.memory) options.memory = std::make_shared<MemoryAccount>(options.memory_limit);
    if (!options.ranges && cuda::nvtx_wanted()) {
      TESSERA_ASSIGN(options.ranges, cuda::nvtx_ranges());
    }
    bool on_gpu = is_gpu_target(variants[0]->target);
    TESSERA_ASSIGN(auto device, on_gpu ? make_cuda_device(options) : make_cpu_device(options));
    auto executor = std::make_unique<ExecutorImpl>(std::move(options), std::move(device), on_gpu);
    for (auto& v : variants) TESSERA_TRY(executor->add(std::move(v), executor->variants().size()));
    return std::unique_ptr<Executor>(std::move(executor));
  });
}

} // namespace tessera
