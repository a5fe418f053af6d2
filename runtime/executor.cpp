// An executor: the variants that are loaded on one device, and the calls of them. A call tries the variants in their order
// (choose_variant.h). Where none fits, the source compiles another one, outside of Device::around(): a compile
// must keep neither the thread pool nor the device from other executors.
#include "base/blocks_of_bytes.h"
#include "base/guarded.h"
#include "base/in_use.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "runtime/choose_variant.h"
#include "runtime/memory_account.h"
#include "runtime/state_values.h"
#include "symbols/input_rank.h"
#include <algorithm>

namespace tessera {
namespace {

using Order = ExecutableSource::Order;

class Dispatcher final : public Executor {
public:
  Dispatcher(ExecutorOptions options, std::shared_ptr<ExecutableSource> source, bool of_body,
             std::unique_ptr<Device> device, bool on_gpu)
      : options_(std::move(options)), source_(std::move(source)), of_body_(of_body), device_(std::move(device)),
        on_gpu_(on_gpu) {}

  Status begin(const Order& order) {
    return inside("adding variants", [&]() -> Status {
      std::optional<Diagnostic> left_out;
      TESSERA_TRY(take(order, left_out));
      if (left_out) return std::move(*left_out);
      return {};
    });
  }

  Result<std::vector<Tensor>> run(const std::map<std::string, Tensor>& inputs, RunStats* stats,
                                  std::vector<Tensor>* outputs) override {
    Call call{.named = &inputs};
    call.arguments.outputs = outputs;
    return dispatch(call, stats);
  }

  Status call(std::span<const DeviceTensor> inputs, const OutputAllocator& outputs, void* stream, RunStats* stats,
              const ScratchAllocator* scratch, DonatedInputs* donated) override {
    Call call{.placed = inputs, .on_stream = true};
    call.arguments.stream = stream;
    call.arguments.on_device = on_gpu_;
    call.arguments.allocator = &outputs;
    call.arguments.scratch = scratch;
    call.arguments.donated = donated;
    TESSERA_TRY(dispatch(call, stats));
    return {};
  }

  Status run_on_device(const std::map<std::string, DeviceTensor>& inputs, std::span<const DeviceTensor> outputs,
                       void* stream, RunStats* stats) override {
    return guarded("running the model", [&]() -> Status {
      TESSERA_ASSIGN(const auto in, shown(inputs));
      std::vector<Tensor> out;
      for (const auto& t : outputs) {
        TESSERA_ASSIGN(auto view, shown(t));
        out.push_back(std::move(view));
      }
      Call call{.named = &in, .on_stream = true};
      call.arguments.stream = stream;
      call.arguments.on_device = true;
      call.arguments.outputs = &out;
      TESSERA_TRY(dispatch(call, stats));
      return {};
    });
  }

  Result<std::vector<DeviceTensor>> output_sizes(const std::map<std::string, DeviceTensor>& inputs,
                                                 RunStats* stats) override {
    return guarded("finding the outputs' sizes", [&]() -> Result<std::vector<DeviceTensor>> {
      auto typed = inputs;
      static std::byte never_read{};
      for (auto& input : typed) input.second.data = &never_read;
      TESSERA_ASSIGN(const auto in, shown(typed));
      std::vector<DeviceTensor> sizes;
      Call call{.named = &in, .sizes = &sizes};
      TESSERA_TRY(dispatch(call, stats));
      return sizes;
    });
  }

  Status wait() override {
    return inside("waiting for the device", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      TESSERA_TRY(device_->wait());
      for (Candidate& c : candidates_.all) TESSERA_TRY(c.loaded->wait());
      return {};
    });
  }

  // A GPU's graph is recorded at the second call that finds its plan.
  Status warm_up(const std::map<std::string, Tensor>& inputs, RunStats* stats) override {
    constexpr int kMax = 8, kAfterPlan = 1;
    warming_up_ = true;
    struct Warm {
      bool& flag;
      ~Warm() { flag = false; }
    } const warm{warming_up_};
    RunStats own;
    RunStats& s = stats ? *stats : own;
    RunStats later; // `stats` are the first run's, which does most
    for (int i = 0, since_plan = 0; i < kMax && since_plan <= (on_gpu_ ? kAfterPlan : 0); ++i) {
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
      TESSERA_TRY(states_.make(generic(), false));
      TESSERA_ASSIGN(out, states_.read(index));
      return {};
    }));
    return out;
  }
  Status write_state(size_t index, const Tensor& value) override {
    return inside("writing a state", [&]() -> Status {
      TESSERA_ASSIGN(auto alone, use_alone());
      TESSERA_TRY(states_.make(generic(), false));
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

  [[nodiscard]] std::vector<std::shared_ptr<const Executable>> variants() const override {
    std::vector<std::shared_ptr<const Executable>> all;
    for (const Candidate& c : candidates_.all) all.push_back(c.entry.executable);
    return all;
  }
  [[nodiscard]] int64_t arena_bytes() const override { return arena_bytes_; }

private:
  struct Call {
    const std::map<std::string, Tensor>* named = nullptr; // inputs by name; null: `placed`
    std::span<const DeviceTensor> placed = {};            // inputs in the model's order
    CallArguments arguments = {};
    bool on_stream = false;                     // of the caller
    std::vector<DeviceTensor>* sizes = nullptr; // of the outputs, which are all that is wanted; nothing runs
    std::span<const Tensor* const> inputs = {}; // in the model's order, once the call is dispatched
  };

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

  // Runs work that touches the device. Exceptions end here.
  template <class Body>
  Status inside(const Doing& doing, const Body& body) {
    return guarded(doing, [&]() -> Status {
      Status outcome;
      TESSERA_TRY(device_->around([&] { outcome = body(); }));
      return outcome;
    });
  }

  Result<InUse::Guard> use_alone() {
    return in_use_.begin("the executor", "each thread takes an executor of its own: Session::new_executor()");
  }
  [[nodiscard]] const Executable& generic() const { return *candidates_.all[candidates_.generic].entry.executable; }

  // ---- a call
  Result<std::vector<Tensor>> dispatch(Call& call, RunStats* stats) {
    return guarded("running the model", [&]() -> Result<std::vector<Tensor>> {
      TESSERA_ASSIGN(auto alone, use_alone());
      std::vector<const Tensor*> ordered;
      if (call.named) { // all variants have the inputs of the generic one: load() sees to it
        ordered.reserve(call.named->size());
        TESSERA_TRY(candidates_.all[candidates_.generic].loaded->variant().in_order(*call.named, ordered));
        call.inputs = ordered;
      } else {
        TESSERA_TRY(show_inputs(call.placed));
        call.inputs = shown_inputs_;
      }
      RunStats local;
      stats_ = stats ? stats : &local;
      *stats_ = RunStats{};
      stats_->begin_ms = host_clock_ms();
      profile_ = options_.profile && stats != nullptr;
      ran_ = nullptr;
      if (source_) source_->begins();
      auto outcome = guarded("running the model", [&] { return answer(call); });
      for (Candidate& c : candidates_.all) c.loaded->let_go();
      if (source_) tell_source();
      stats_->total_ms = host_clock_ms() - stats_->begin_ms;
      stats_ = nullptr;
      return outcome;
    });
  }

  Result<std::vector<Tensor>> answer(const Call& call) {
    if (source_) TESSERA_TRY(prepare(call));
    CallChoice choice(candidates_, ++calls_, *stats_, profile_ ? &stats_->phases : nullptr);
    std::optional<Diagnostic> failure; // why the last variant that was wanted is not there
    for (;;) {
      std::optional<std::vector<Tensor>> outputs;
      TESSERA_TRY(inside("running the model", [&] { return attempt(call, choice, outputs); }));
      if (outputs) return std::move(*outputs);
      for (bool compiled = false; !compiled;) {
        const auto miss = choice.wanted();
        if (!miss || !source_) return explained(choice.error(), choice.missed(), failure);
        if (captured_)
          return Diagnostic(ErrorCode::Usage,
                            "a call with these sizes is captured before there was one: it needs another variant")
              .note("call it once before capturing, with inputs of the same sizes");
        TESSERA_ASSIGN(compiled, compile_for(*miss, failure));
      }
      choice.compiled();
    }
  }

  // Inside of around(). `outputs` stays empty where no variant answers.
  Status attempt(const Call& call, CallChoice& choice, std::optional<std::vector<Tensor>>& outputs) {
    captured_ = false;
    if (call.on_stream) {
      TESSERA_ASSIGN(captured_, device_->captures(call.arguments.stream));
    }
    if (!captured_) std::erase_if(retired_, [](const Retired& r) { return r.successor_ran; });
    TESSERA_TRY(states_.make(generic(), captured_));
    const auto inputs = states_.behind(call.inputs);
    for (;;) {
      TESSERA_ASSIGN(Candidate * candidate, choice.next(inputs));
      if (!candidate) return {};
      if (call.sizes) {
        TESSERA_ASSIGN(*call.sizes, candidate->loaded->output_sizes());
        outputs.emplace();
        return {};
      }
      auto outcome = run_variant(*candidate->loaded, call.arguments);
      if (auto* done = std::get_if<std::vector<Tensor>>(&outcome)) {
        choice.answered();
        outputs = std::move(*done);
        return {};
      }
      TESSERA_TRY(choice.refused(*candidate, std::move(std::get<Refusal>(outcome))));
    }
  }

  LoadedExecutable::Outcome run_variant(LoadedExecutable& l, CallArguments arguments) {
    const NamedRange range(options_.ranges.get(), l.variant().exe->model_name);
    arguments.profile = profile_;
    arguments.wait_for_plans = options_.wait_for_plans || warming_up_;
    arguments.captured = captured_;
    arguments.states = states_.all();
    arguments.changes_states = !warming_up_;
    arguments.of_body = of_body_;
    auto outcome = l.run(arguments, *stats_);
    // The memory of other shapes is given back before a call is refused. A body's call is a part of its outer run's.
    const bool whole = !arguments.donated || !arguments.donated->overwritten; // the inputs
    if (options_.memory->limit() != 0 && !of_body_ && whole && !captured_ && lacks_memory(outcome) &&
        give_back().ok()) {
      arguments.again = true;
      outcome = l.run(arguments, *stats_);
    }
    ran_ = &l;
    arena_bytes_ = l.arena_bytes();
    return outcome;
  }

  static bool lacks_memory(const LoadedExecutable::Outcome& outcome) {
    const auto* refusal = std::get_if<Refusal>(&outcome);
    return refusal && !refusal->miss && refusal->known && refusal->known->code == ErrorCode::OutOfMemory;
  }

  // Inside of around(): what earlier calls have left behind, weights excepted.
  Status give_back() {
    TESSERA_TRY(device_->wait());
    for (Candidate& c : candidates_.all) {
      TESSERA_TRY(c.loaded->wait());
      c.loaded->trim();
    }
    return device_->trim();
  }

  // Whether a compile failed as the model has no meaning for the inputs of the call.
  [[nodiscard]] static bool says_why(ErrorCode code) {
    return code == ErrorCode::BadAttribute || code == ErrorCode::ShapeMismatch || code == ErrorCode::TypeMismatch ||
           code == ErrorCode::BadInput || code == ErrorCode::SizeOverflow;
  }
  // The error of a call, with what came of compiling for it.
  [[nodiscard]] Diagnostic explained(Diagnostic error, bool missed, const std::optional<Diagnostic>& failure) const {
    if (!missed || of_body_ || error.code != ErrorCode::GuardFailed) return error;
    if (failure && says_why(failure->code)) {
      Diagnostic why(error.code, failure->location, failure->message);
      why.notes = failure->notes;
      why.note("no variant takes these inputs: " + error.message);
      why.notes.insert(why.notes.end(), error.notes.begin(), error.notes.end());
      return why;
    }
    if (failure)
      error.note("compiling a variant for these sizes failed: " + failure->str());
    else if (!source_)
      error.note("no other variant fits, and recompilation is off");
    else
      error.note("compiling another variant did not help");
    return error;
  }

  void tell_source() {
    const int swaps = stats_->renewals + stats_->replans;
    if (!ran_) return source_->ended(nullptr, {}, {}, swaps);
    for (Retired& r : retired_) r.successor_ran = r.successor_ran || r.successor == ran_->variant().exe;
    const Variant& v = ran_->variant();
    const size_t inputs = input_symbols(v);
    source_->ended(v.owner, std::span(v.slots).first(inputs), std::span(ran_->call.values).first(inputs), swaps);
  }

  // ---- the variants
  // Before a call: what the source wants for its sizes, and what has changed since the last one. A call that is captured
  // takes the variants as they are.
  Status prepare(const Call& call) {
    if (!source_->specializes() && source_->generation() == generation_) return {};
    if (call.on_stream) {
      bool captured = false;
      const Status known = inside("looking at a stream", [&]() -> Status {
        TESSERA_ASSIGN(captured, device_->captures(call.arguments.stream));
        return {};
      });
      if (known.ok() && captured) return {};
    }
    if (source_->specializes())
      if (const auto sizes = sizes_of(call.inputs)) TESSERA_TRY(source_->specialize(*sizes, *stats_));
    if (source_->generation() == generation_) return {};
    std::optional<Diagnostic> left_out;
    const Status taken = inside("arranging variants", [&]() -> Status {
      TESSERA_ASSIGN(stats_->renewals, take(source_->order(), left_out));
      return {};
    });
    if (!taken.ok()) TESSERA_LOGF(LogChannel::Recompiles, "an executor keeps its variants: " + taken.error().str());
    return {};
  }

  // The sizes of a call; nothing where the inputs are not what the model declares, which bind() says.
  [[nodiscard]] std::optional<std::map<std::string, int64_t>> sizes_of(std::span<const Tensor* const> inputs) const {
    const Executable& exe = generic();
    std::map<std::string, int64_t> sizes;
    for (size_t i = 0; i < exe.call_inputs(); ++i) {
      const Binding& b = exe.inputs[i];
      const auto& buffer = exe.buffers[static_cast<size_t>(b.buffer)];
      if (i >= inputs.size() || !inputs[i]->defined() || inputs[i]->dtype() != buffer.dtype) return std::nullopt;
      const Dims& dims = inputs[i]->dims();
      const auto rank = exe.env->find(rank_symbol(b.name));
      if (rank) sizes.emplace(rank->symbol_name(), static_cast<int64_t>(dims.size()));
      if (!rank && dims.size() != buffer.shape.size()) return std::nullopt;
      for (size_t d = 0; d < std::min(buffer.shape.size(), dims.size()); ++d) {
        if (!buffer.shape[d].is_symbol()) continue;
        const auto [at, fresh] = sizes.emplace(buffer.shape[d].symbol_name(), dims[d]);
        if (!fresh && at->second != dims[d]) return std::nullopt;
      }
    }
    return sizes;
  }

  // True: there is a variant that the call has not tried. `failure`: why there is none. Error OutOfMemory.
  Result<bool> compile_for(const GuardMiss& miss, std::optional<Diagnostic>& failure) {
    const Stopwatch watch;
    std::vector<uint64_t> numbers;
    for (const Candidate& c : candidates_.all) numbers.push_back(c.entry.number);
    auto made = source_->compile_for(miss, numbers);
    // A variant of an order that is taken could not be loaded.
    if (made.ok() && (!*made || source_->generation() == generation_)) return false;
    std::optional<Diagnostic> error;
    if (made.ok()) {
      const Status taken = inside("adding a variant", [&]() -> Status {
        TESSERA_TRY(take(source_->order(), error));
        return {};
      });
      if (!taken.ok()) error = taken.error();
    } else {
      error = std::move(made).take_error();
    }
    const double ms = watch.ms();
    stats_->recompile_ms += ms;
    const std::string why = (miss.refused.empty() ? miss.guard + " did not hold"
                                                  : std::to_string(miss.refused.size()) +
                                                        " library calls are not computed by the device's libraries") +
                            " (" + miss.reason + ") for " + sizes_text(miss.sizes);
    if (error) {
      if (error->code == ErrorCode::OutOfMemory) return std::move(*error);
      TESSERA_LOGF(LogChannel::Recompiles,
                   why + "; compiling another variant failed after " + std::to_string(ms) + " ms: " + error->str());
      failure = std::move(error);
      return false;
    }
    ++stats_->recompiles;
    TESSERA_LOGF(LogChannel::Recompiles, why + "; another variant took " + std::to_string(ms) + " ms");
    return true;
  }

  // Inside of around().
  Result<std::unique_ptr<LoadedExecutable>> load(const std::shared_ptr<const Executable>& executable,
                                                 const Executable& generic) {
    if (is_gpu_target(executable->target) != on_gpu_)
      return Diagnostic(ErrorCode::Usage,
                        "the variants of one executor are for one device; one is for '" + executable->target + "'");
    auto same_name = [](const Binding& a, const Binding& b) { return a.name == b.name; };
    if (executable->states.size() != generic.states.size() ||
        !std::equal(executable->inputs.begin(), executable->inputs.end(), generic.inputs.begin(), generic.inputs.end(),
                    same_name))
      return Diagnostic(ErrorCode::Usage, "the variants of one executor have the same inputs in the same order");
    return LoadedExecutable::create(executable, *device_, options_);
  }

  // Inside of around(), between the runs of variants: those of `order` from now on. What is loaded stays so. A variant
  // that cannot be loaded is left out, or keeps its code: `left_out` is the first such error. Returns how many came and
  // went, those aside that are not specialized, or got better code.
  Result<int> take(const Order& order, std::optional<Diagnostic>& left_out) {
    generation_ = order.generation;
    const auto mine = [this](uint64_t number) {
      return std::find_if(candidates_.all.begin(), candidates_.all.end(),
                          [&](const Candidate& c) { return c.entry.number == number; });
    };
    int swaps = 0;
    for (Candidate& c : candidates_.all) {
      const auto same = [&](const auto& entry) { return entry.number == c.entry.number; };
      if (std::any_of(order.variants.begin(), order.variants.end(), same)) continue;
      TESSERA_TRY(c.loaded->wait());
      ++swaps;
    }
    std::vector<std::unique_ptr<LoadedExecutable>> fresh(order.variants.size());
    for (size_t i = 0; i < order.variants.size(); ++i) {
      const auto& entry = order.variants[i];
      const auto had = mine(entry.number);
      const bool is_new = had == candidates_.all.end();
      if (!is_new && had->entry.executable == entry.executable) continue;
      auto loaded = load(entry.executable, *order.variants[order.generic].executable);
      if (loaded.ok()) {
        fresh[i] = std::move(*loaded);
        swaps += entry.specialized || !is_new ? 1 : 0;
        continue;
      }
      if (is_new && i == order.generic) return std::move(loaded).take_error();
      TESSERA_LOGF(LogChannel::Recompiles,
                   std::string(is_new ? "an executor does without a variant: " : "a variant is not replaced: ") +
                       loaded.error().str());
      if (!left_out) left_out = std::move(loaded).take_error();
    }
    Candidates next;
    next.all.reserve(order.variants.size());
    retired_.reserve(retired_.size() + order.variants.size());
    ran_ = nullptr;
    for (size_t i = 0; i < order.variants.size(); ++i) { // nothing fails from here on
      const auto& entry = order.variants[i];
      const auto had = mine(entry.number);
      if (i == order.generic) next.generic = next.all.size();
      if (had == candidates_.all.end()) {
        if (fresh[i]) next.all.push_back({entry, std::move(fresh[i])});
        continue;
      }
      Candidate& c = next.all.emplace_back(std::move(*had));
      c.entry.index = entry.index;
      if (!fresh[i]) continue;
      // The old code goes when the new one has run: until then nothing else may hold the weights on the device.
      retired_.push_back({std::exchange(c.loaded, std::move(fresh[i])), entry.executable.get()});
      c.refused.clear();
      c.entry.executable = entry.executable;
    }
    candidates_ = std::move(next);
    return swaps;
  }

  InUse in_use_;
  bool warming_up_ = false;
  ExecutorOptions options_;
  const std::shared_ptr<ExecutableSource> source_; // null: the variants stay what they are
  const bool of_body_;                             // CallArguments::of_body
  std::unique_ptr<Device> device_;
  const bool on_gpu_;
  Candidates candidates_; // destroyed before the device
  struct Retired {
    std::unique_ptr<LoadedExecutable> loaded;
    const Executable* successor;
    bool successor_ran = false;
  };
  std::vector<Retired> retired_; // replaced by better code
  uint64_t generation_ = 0;      // of the source's order that is taken
  uint64_t calls_ = 0;
  int64_t arena_bytes_ = 0;
  StateValues states_{*device_}; // made by the first call
  // The current call:
  RunStats* stats_ = nullptr;
  bool profile_ = false;
  LoadedExecutable* ran_ = nullptr;
  bool captured_ = false;                   // into a graph of the caller
  std::vector<Tensor> views_;               // inputs of the last call by position; the memory is the caller's
  std::vector<const Tensor*> shown_inputs_; // to views_
};

Result<std::unique_ptr<Executor>> make(const Order& order, std::shared_ptr<ExecutableSource> source,
                                       ExecutorOptions options, bool of_body) {
  std::vector<std::shared_ptr<const Executable>> executables;
  for (const auto& entry : order.variants) {
    if (!entry.executable) return Diagnostic(ErrorCode::Usage, "an executable is missing");
    executables.push_back(entry.executable);
  }
  if (executables.empty()) return Diagnostic(ErrorCode::Usage, "an executor needs at least one executable");
  if (!options.pool) options.pool = ThreadPool::create();
  if (!options.memory) options.memory = std::make_shared<MemoryAccount>(options.memory_limit);
  if (!options.ranges) {
    TESSERA_ASSIGN(options.ranges, wanted_ranges());
  }
  const bool on_gpu = is_gpu_target(executables.front()->target);
  TESSERA_ASSIGN(auto device, on_gpu ? make_cuda_device(executables, options) : make_cpu_device(options));
  auto executor =
      std::make_unique<Dispatcher>(std::move(options), std::move(source), of_body, std::move(device), on_gpu);
  TESSERA_TRY(executor->begin(order));
  return std::unique_ptr<Executor>(std::move(executor));
}

constexpr const char* kMaking = "making an executor";

Order in_order(std::vector<std::shared_ptr<const Executable>> executables) {
  Order order;
  for (auto& executable : executables) {
    const size_t i = order.variants.size();
    order.variants.push_back({i, static_cast<int>(i), false, std::move(executable)});
  }
  order.generic = order.variants.empty() ? 0 : order.variants.size() - 1;
  return order;
}

} // namespace

Result<std::unique_ptr<Executor>> Executor::create(std::vector<std::shared_ptr<const Executable>> variants,
                                                   ExecutorOptions options) {
  return guarded(kMaking, [&] { return make(in_order(std::move(variants)), nullptr, std::move(options), false); });
}

Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<ExecutableSource> source, ExecutorOptions options) {
  return guarded(kMaking, [&] { return make(source->order(), source, std::move(options), false); });
}

Result<std::unique_ptr<Executor>> make_body_executor(std::shared_ptr<const Executable> body, ExecutorOptions options) {
  return guarded(kMaking, [&] { return make(in_order({std::move(body)}), nullptr, std::move(options), true); });
}

} // namespace tessera
