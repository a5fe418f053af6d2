#include "graph/support/blocks_of_bytes.h"
#include "graph/support/guarded.h"
#include "graph/support/in_use.h"
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"
#include "runtime/choose_variant.h"
#include "runtime/cuda/nvtx.h"
#include "runtime/memory_account.h"
#include "runtime/state_values.h"
#include "runtime/variant_executor.h"
#include <algorithm>

namespace tessera {
namespace {

class ExecutorImpl final : public VariantExecutor {
public:
  ExecutorImpl(ExecutorOptions options, Order order, std::unique_ptr<Device> device, bool on_gpu)
      : options_(std::move(options)), before_generic_(order.before_generic), of_body_(order.of_body),
        device_(std::move(device)), on_gpu_(on_gpu) {}

  Status begin(std::vector<std::shared_ptr<const Executable>> variants, size_t generic) {
    for (auto& v : variants) TESSERA_TRY(add(std::move(v), list_.loaded.size()));
    list_.generic = generic;
    return {};
  }

  Status add(std::shared_ptr<const Executable> executable, size_t at) {
    return inside("adding a variant", [&] { return join(std::move(executable), at); });
  }

  Result<std::vector<Tensor>> run(const std::map<std::string, Tensor>& inputs, RunStats* stats,
                                  std::vector<Tensor>* outputs) override {
    return guarded("running the model", [&]() -> Result<std::vector<Tensor>> {
      TESSERA_ASSIGN(auto alone, use_alone());
      std::vector<const Tensor*> ordered;
      TESSERA_TRY(in_order(inputs, ordered));
      CallArguments arguments = on_stream(nullptr, stats);
      arguments.outputs = outputs;
      return use_variant(alone, ordered, Running{*this, arguments}, stats);
    });
  }

  Status call(std::span<const DeviceTensor> inputs, const OutputAllocator& outputs, void* stream, RunStats* stats,
              const ScratchAllocator* scratch, DonatedInputs* donated) override {
    return guarded("running the model", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      TESSERA_TRY(show_inputs(inputs));
      CallArguments arguments = on_stream(stream, stats);
      arguments.on_device = on_gpu_;
      arguments.allocator = &outputs;
      arguments.scratch = scratch;
      arguments.donated = donated;
      TESSERA_TRY(use_variant(alone, shown_inputs_, Running{*this, arguments}, stats, &stream));
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
      CallArguments arguments = on_stream(stream, stats);
      arguments.on_device = true;
      arguments.outputs = &out;
      TESSERA_TRY(use_variant(alone, ordered, Running{*this, arguments}, stats, &stream));
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
      for (auto& l : list_.loaded) TESSERA_TRY(l.variant->wait());
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

  Result<Tensor> read_state(size_t index) override {
    Tensor out;
    TESSERA_TRY(inside("reading a state", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      TESSERA_TRY(states_.make(*list_.executables[list_.generic], false));
      TESSERA_ASSIGN(out, states_.read(index));
      return {};
    }));
    return out;
  }
  Status write_state(size_t index, const Tensor& value) override {
    return inside("writing a state", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      TESSERA_TRY(states_.make(*list_.executables[list_.generic], false));
      return states_.write(index, value);
    });
  }
  Status reset_states() override {
    return inside("resetting states", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      return states_.reset(); // those that are not made yet begin with these values
    });
  }

  Status trim() override {
    return inside("giving memory back", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      TESSERA_TRY(give_back());
      return_free_memory();
      return {};
    });
  }

  [[nodiscard]] const std::vector<std::shared_ptr<const Executable>>& variants() const override {
    return list_.executables;
  }
  [[nodiscard]] int64_t arena_bytes() const override { return arena_bytes_; }
  Status add_variant(std::shared_ptr<const Executable> executable, size_t at) override {
    auto all = list_.executables;
    at = std::min(at, list_.generic);
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(at), std::move(executable));
    return arrange(all, list_.generic + 1);
  }
  Status remove_variant(const Executable& executable) override {
    auto all = list_.executables;
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& v) { return v.get() == &executable; });
    const auto at = static_cast<size_t>(found - all.begin());
    if (found == all.end() || at == list_.generic)
      return Diagnostic(ErrorCode::Usage, "the executor has no such variant besides its generic one");
    all.erase(found);
    return arrange(all, list_.generic - (at < list_.generic ? 1 : 0));
  }
  bool captures(void* stream) override {
    bool captured = false;
    const Status known = inside("looking at a stream", [&]() -> Status {
      TESSERA_ASSIGN(captured, device_->captures(stream));
      return {};
    });
    return known.ok() && captured;
  }
  Status arrange(std::span<const std::shared_ptr<const Executable>> wanted, size_t generic) override {
    if (generic >= wanted.size() || std::find(wanted.begin(), wanted.end(), nullptr) != wanted.end())
      return Diagnostic(ErrorCode::Usage, "an executor needs a generic variant, and no executable may be missing");
    TESSERA_ASSIGN(auto alone, use_alone());
    return inside("arranging variants", [&] { return take(wanted, generic); });
  }

private:
  static constexpr size_t kMaxVariants = 16, kMaxFailures = 64; // variants: those that are not specialized

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

  [[nodiscard]] CallArguments on_stream(void* stream, const RunStats* stats) const {
    CallArguments arguments;
    arguments.stream = stream;
    arguments.profile = profiles(stats);
    arguments.wait_for_plans = waits();
    return arguments;
  }

  Result<InUse::Guard> use_alone() {
    return in_use_.begin("the executor", "each thread takes an executor of its own: Session::new_executor()");
  }

  // What use_variant() does with the variant that fits.
  struct Running {
    ExecutorImpl& self;
    CallArguments given;
    LoadedVariant::Outcome operator()(LoadedVariant& l) const {
      const NamedRange range(self.options_.ranges.get(), l.variant().exe->model_name);
      CallArguments arguments = given;
      arguments.captured = self.captured_;
      arguments.states = self.states_.all();
      arguments.changes_states = !self.warming_up_;
      arguments.of_body = self.of_body_;
      auto done = l.run(arguments, *self.stats_);
      // What other shapes left behind goes before a call is refused. A body's call is a part of its outer run's.
      const bool whole = !arguments.donated || !arguments.donated->overwritten; // the inputs
      if (self.options_.memory->limit() != 0 && !self.of_body_ && whole && !arguments.captured && lacks_memory(done) &&
          self.give_back().ok()) {
        arguments.again = true;
        done = l.run(arguments, *self.stats_);
      }
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
    for (auto& l : list_.loaded) {
      TESSERA_TRY(l.variant->wait());
      l.variant->trim();
    }
    return device_->trim();
  }

  // All variants have the inputs of the generic one: load() sees to it. The executor is used alone.
  Status in_order(const std::map<std::string, Tensor>& inputs, std::vector<const Tensor*>& ordered) {
    ordered.reserve(inputs.size());
    return list_.loaded[list_.generic].variant->variant().in_order(inputs, ordered);
  }

  // `stream`: of the caller's, where it gives one.
  template <class Use>
  Result<std::vector<Tensor>> use_variant(const InUse::Guard&, std::span<const Tensor* const> inputs, const Use& use,
                                          RunStats* stats, void* const* stream = nullptr) {
    RunStats local;
    stats_ = stats ? stats : &local;
    *stats_ = RunStats{};
    stats_->begin_ms = host_clock_ms();
    std::vector<Tensor> outputs;
    ran_ = nullptr;
    if (options_.observer) options_.observer->begins();
    VariantChoice choice(list_, *stats_, {options_.recompile != nullptr, before_generic_, profiles(stats)});
    const VariantChoice::Use by_reference = [&use](LoadedVariant& l) { return use(l); };
    struct Frame {
      ExecutorImpl* self;
      std::span<const Tensor* const> inputs;
      const VariantChoice::Use& use;
      VariantChoice& choice;
      std::vector<Tensor>& outputs;
      bool renews;
      void* const* stream;
      Status run() const {
        self->captured_ = false;
        if (stream) {
          TESSERA_ASSIGN(self->captured_, self->device_->captures(*stream));
        }
        if (renews && !self->captured_) self->renew();
        TESSERA_TRY(self->states_.make(*self->list_.executables[self->list_.generic], self->captured_));
        TESSERA_ASSIGN(outputs, choice.run(self->states_.behind(inputs), use));
        return {};
      }
    };
    Frame frame{this, inputs, by_reference, choice, outputs, options_.observer != nullptr, stream};
    Status outcome = inside("running the model", [&frame] { return frame.run(); });
    if (outcome.ok() && captured_ && choice.wanted())
      outcome = Diagnostic(ErrorCode::Usage,
                           "a call with these sizes is captured before there was one: it needs another variant")
                    .note("call it once before capturing, with inputs of the same sizes");
    failure_.reset();
    while (outcome.ok() && choice.wanted()) {
      // Outside of around(): a compile must keep neither the thread pool nor the device from other executors.
      auto compiled = recompile(inputs, *choice.wanted());
      frame.renews = false;
      if (!compiled.ok()) {
        outcome = std::move(compiled).take_error();
        break;
      }
      choice.compiled(*compiled);
      outcome = inside("running the model", [&frame] { return frame.run(); });
    }
    for (auto& l : list_.loaded) l.variant->let_go();
    if (options_.observer) tell_observer();
    stats_->total_ms = host_clock_ms() - stats_->begin_ms;
    stats_ = nullptr;
    if (!outcome.ok()) return explained(std::move(outcome).take_error(), choice);
    return outputs;
  }

  // Whether a compile failed as the model has no meaning for the inputs of the call.
  [[nodiscard]] static bool says_why(ErrorCode code) {
    return code == ErrorCode::BadAttribute || code == ErrorCode::ShapeMismatch || code == ErrorCode::TypeMismatch ||
           code == ErrorCode::BadInput || code == ErrorCode::SizeOverflow;
  }
  // The error of a call, with what came of compiling for it.
  [[nodiscard]] Diagnostic explained(Diagnostic error, const VariantChoice& choice) const {
    const GuardMiss* missed = choice.missed();
    if (missed == nullptr || error.code != ErrorCode::GuardFailed) return error;
    if (failure_ && says_why(failure_->code)) {
      Diagnostic why(error.code, failure_->location, failure_->message);
      why.notes = failure_->notes;
      why.note("no variant takes these inputs: " + error.message);
      why.notes.insert(why.notes.end(), error.notes.begin(), error.notes.end());
      return why;
    }
    if (failure_)
      error.note("compiling a variant for these sizes failed: " + failure_->str());
    else if (!options_.recompile)
      error.note("no other variant fits, and recompilation is off");
    else if (is_full())
      error.note("the limit of " + std::to_string(kMaxVariants) + " variants is reached");
    else
      error.note("compiling another variant did not help");
    return error;
  }
  [[nodiscard]] bool is_full() const { return list_.loaded.size() - list_.generic >= kMaxVariants; }

  // Inside of around().
  Result<std::unique_ptr<LoadedVariant>> load(const std::shared_ptr<const Executable>& executable) {
    if (is_gpu_target(executable->target) != on_gpu_)
      return Diagnostic(ErrorCode::Usage,
                        "the variants of one executor are for one device; one is for '" + executable->target + "'");
    auto same_name = [](const Binding& a, const Binding& b) { return a.name == b.name; };
    if (!list_.executables.empty()) {
      const auto& inputs = list_.executables.front()->inputs;
      if (executable->states.size() != list_.executables.front()->states.size() ||
          !std::equal(executable->inputs.begin(), executable->inputs.end(), inputs.begin(), inputs.end(), same_name))
        return Diagnostic(ErrorCode::Usage, "the variants of one executor have the same inputs in the same order");
    }
    return LoadedVariant::create(executable, *device_, options_);
  }
  Status join(std::shared_ptr<const Executable> executable, size_t at) {
    TESSERA_ASSIGN(auto loaded, load(executable));
    list_.reserve(list_.loaded.size() + 1); // all or none
    if (at <= list_.generic && !list_.loaded.empty()) ++list_.generic;
    list_.insert(at, std::move(executable), std::move(loaded));
    return {};
  }

  // Inside of around(). What cannot be loaded is left out.
  Status take(std::span<const std::shared_ptr<const Executable>> wanted, size_t generic) {
    const auto index_of = [&](const std::shared_ptr<const Executable>& e) {
      return static_cast<size_t>(std::find(list_.executables.begin(), list_.executables.end(), e) -
                                 list_.executables.begin());
    };
    for (size_t i = 0; i < list_.loaded.size(); ++i)
      if (std::find(wanted.begin(), wanted.end(), list_.executables[i]) == wanted.end())
        TESSERA_TRY(list_.loaded[i].variant->wait());
    std::vector<std::unique_ptr<LoadedVariant>> fresh(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (index_of(wanted[i]) < list_.loaded.size()) continue;
      auto variant = load(wanted[i]);
      if (variant.ok()) {
        fresh[i] = std::move(*variant);
      } else if (i == generic) {
        return std::move(variant).take_error();
      } else {
        TESSERA_LOGF(LogChannel::Recompiles, "an executor does without a variant: " + variant.error().str());
      }
    }
    VariantList next;
    next.reserve(wanted.size());
    ran_ = nullptr;
    for (size_t i = 0; i < wanted.size(); ++i) { // nothing fails from here on
      if (i == generic) next.generic = next.loaded.size();
      const size_t before = index_of(wanted[i]);
      if (before == list_.loaded.size() && !fresh[i]) continue;
      next.executables.push_back(wanted[i]);
      next.loaded.push_back(fresh[i] ? VariantList::Loaded{std::move(fresh[i]), {}} : std::move(list_.loaded[before]));
    }
    list_ = std::move(next);
    return {};
  }

  // ---- better code for the same variants
  // Inside of around(), before a call.
  void renew() {
    std::erase_if(retired_, [](const Retired& r) { return r.successor_ran; });
    const uint64_t now = options_.observer->generation();
    if (now == generation_) return;
    for (size_t i = 0; i < list_.loaded.size(); ++i) {
      auto successor = options_.observer->successor(*list_.executables[i]);
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
      retired_.push_back({std::exchange(list_.loaded[i].variant, std::move(*loaded)), successor.get()});
      list_.loaded[i].refused.clear();
      list_.executables[i] = std::move(successor);
      ++stats_->renewals;
    }
    generation_ = now;
  }

  void tell_observer() {
    if (!ran_) return options_.observer->ended(nullptr, {}, {});
    for (Retired& r : retired_) r.successor_ran = r.successor_ran || r.successor == ran_->variant().exe;
    const Variant& v = ran_->variant();
    const size_t inputs = input_symbols(v);
    options_.observer->ended(v.owner, std::span(v.slots).first(inputs), std::span(ran_->call.values).first(inputs));
  }

  // ---- another variant
  static std::string text_of(const std::map<std::string, int64_t>& sizes) {
    std::string text;
    for (const auto& [name, value] : sizes) text += (text.empty() ? "" : ", ") + name + " = " + std::to_string(value);
    return text;
  }

  // True: a new variant stands in the place that was wanted. Error OutOfMemory; any other failure is remembered.
  Result<bool> recompile(std::span<const Tensor* const> inputs, const VariantChoice::Wanted& wanted) {
    const GuardMiss& miss = wanted.miss;
    if (is_full()) {
      TESSERA_LOGF(LogChannel::Recompiles,
                   "not compiling: the limit of " + std::to_string(kMaxVariants) + " variants is reached");
      return false;
    }
    if (const auto failed = failed_compiles_.find(miss.sizes); failed != failed_compiles_.end()) {
      failure_ = failed->second;
      TESSERA_LOGF(LogChannel::Recompiles, "not compiling: it failed before for " + text_of(miss.sizes));
      return false;
    }
    const Stopwatch watch;
    std::map<std::string, Dims> shapes;
    const auto& names = list_.executables.front()->inputs;
    for (size_t i = 0; i < inputs.size(); ++i) shapes.emplace(names[i].name, inputs[i]->dims());
    auto compiled = options_.recompile(shapes, miss);
    if (compiled.ok() && !*compiled) return false;
    Status added = compiled.ok() ? add(*compiled, wanted.at) : Status();
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
      failure_ = error;
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
  const bool before_generic_, of_body_;
  std::unique_ptr<Device> device_;
  bool on_gpu_;
  VariantList list_;                                                     // destroyed before the device
  std::map<std::map<std::string, int64_t>, Diagnostic> failed_compiles_; // by sizes: not again on every call
  struct Retired {
    std::unique_ptr<LoadedVariant> loaded;
    const Executable* successor;
    bool successor_ran = false;
  };
  std::vector<Retired> retired_; // replaced variants
  uint64_t generation_ = 0;      // of the observer, at the last query
  int64_t arena_bytes_ = 0;
  StateValues states_{*device_}; // made by the first call
  // Of the current call:
  RunStats* stats_ = nullptr;
  LoadedVariant* ran_ = nullptr;
  std::optional<Diagnostic> failure_;       // of the last compile that it wanted, in this call or an earlier one
  bool captured_ = false;                   // into a graph of the caller
  std::vector<Tensor> views_;               // inputs of the last call by position; the memory is the caller's
  std::vector<const Tensor*> shown_inputs_; // to views_
};

} // namespace

Result<std::unique_ptr<VariantExecutor>>
VariantExecutor::create(std::vector<std::shared_ptr<const Executable>> variants, Order order, ExecutorOptions options) {
  return guarded("making an executor", [&]() -> Result<std::unique_ptr<VariantExecutor>> {
    if (order.generic >= variants.size()) return Diagnostic(ErrorCode::Usage, "an executor needs a generic executable");
    for (const auto& v : variants)
      if (!v) return Diagnostic(ErrorCode::Usage, "an executable is missing");
    if (!options.pool) options.pool = ThreadPool::create();
    if (!options.memory) options.memory = std::make_shared<MemoryAccount>(options.memory_limit);
    if (!options.ranges && cuda::nvtx_wanted()) {
      TESSERA_ASSIGN(options.ranges, cuda::nvtx_ranges());
    }
    bool on_gpu = is_gpu_target(variants[0]->target);
    TESSERA_ASSIGN(auto device, on_gpu ? make_cuda_device(variants, options) : make_cpu_device(options));
    auto executor = std::make_unique<ExecutorImpl>(std::move(options), order, std::move(device), on_gpu);
    TESSERA_TRY(executor->begin(std::move(variants), order.generic));
    return std::unique_ptr<VariantExecutor>(std::move(executor));
  });
}

Result<std::unique_ptr<Executor>> Executor::create(std::vector<std::shared_ptr<const Executable>> variants,
                                                   ExecutorOptions options) {
  if (variants.empty()) return Diagnostic(ErrorCode::Usage, "an executor needs at least one executable");
  const VariantExecutor::Order last{variants.size() - 1, true};
  TESSERA_ASSIGN(auto executor, VariantExecutor::create(std::move(variants), last, std::move(options)));
  return std::unique_ptr<Executor>(std::move(executor));
}

} // namespace tessera
