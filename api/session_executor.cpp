#include "api/session_executor.h"
#include "graph/support/guarded.h"
#include "graph/support/in_use.h"
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"
#include "graph/sym/input_rank.h"
#include "runtime/variant_executor.h"
#include <algorithm>

namespace tessera {
namespace {

// What an input of a call is; dims null: it was not given.
struct Given {
  DType dtype = DType::F32;
  const Dims* dims = nullptr;
};

auto by_name(const std::map<std::string, DeviceTensor>& inputs) {
  return [&inputs](size_t, const std::string& name) {
    const auto it = inputs.find(name);
    return it == inputs.end() ? Given{} : Given{it->second.dtype, &it->second.dims};
  };
}

auto by_tensor(const std::map<std::string, Tensor>& inputs) {
  return [&inputs](size_t, const std::string& name) {
    const auto it = inputs.find(name);
    return it == inputs.end() || !it->second.defined() ? Given{} : Given{it->second.dtype(), &it->second.dims()};
  };
}

class SessionExecutor final : public Executor {
public:
  explicit SessionExecutor(std::shared_ptr<VariantPool> pool) : pool_(std::move(pool)) {}

  Status open(std::shared_ptr<BackgroundWork> work) {
    ExecutorOptions options = pool_->options().executor;
    if (work) options.observer = observe_calls(std::move(work), pool_->successors());
    // `this` owns the executor, whose calls these are.
    options.recompile = [this](const std::map<std::string, Dims>&, const GuardMiss& miss) {
      return pool_->recompile(miss, [this](const SessionVariant& v) { return has(v); });
    };
    profiles_ = options.profile;
    generation_ = pool_->generation();
    const auto order = pool_->order();
    std::vector<std::shared_ptr<const Executable>> executables;
    for (const auto& v : order.variants) executables.push_back(v->executable);
    // What a specialized variant misses is the policy's to compile.
    TESSERA_ASSIGN(inner_, VariantExecutor::create(std::move(executables), {order.generic, false}, std::move(options)));
    return {};
  }

  Result<std::vector<Tensor>> run(const std::map<std::string, Tensor>& inputs, RunStats* stats,
                                  std::vector<Tensor>* outputs) override {
    return use("running the model", by_tensor(inputs), stats,
               [&](RunStats* s) { return inner_->run(inputs, s, outputs); });
  }
  Status run_on_device(const std::map<std::string, DeviceTensor>& inputs, std::span<const DeviceTensor> outputs,
                       void* stream, RunStats* stats) override {
    return use(
        "running the model", by_name(inputs), stats,
        [&](RunStats* s) { return inner_->run_on_device(inputs, outputs, stream, s); }, &stream);
  }
  Status call(std::span<const DeviceTensor> inputs, const OutputAllocator& outputs, void* stream, RunStats* stats,
              const ScratchAllocator* scratch, DonatedInputs* donated) override {
    const auto given = [&](size_t i, const std::string&) {
      return i < inputs.size() ? Given{inputs[i].dtype, &inputs[i].dims} : Given{};
    };
    return use(
        "running the model", given, stats,
        [&](RunStats* s) { return inner_->call(inputs, outputs, stream, s, scratch, donated); }, &stream);
  }
  Result<std::vector<DeviceTensor>> output_sizes(const std::map<std::string, DeviceTensor>& inputs,
                                                 RunStats* stats) override {
    return use("finding the outputs' sizes", by_name(inputs), stats,
               [&](RunStats* s) { return inner_->output_sizes(inputs, s); });
  }
  Status warm_up(const std::map<std::string, Tensor>& inputs, RunStats* stats) override {
    return use("warming up", by_tensor(inputs), stats, [&](RunStats* s) { return inner_->warm_up(inputs, s); });
  }
  Result<Tensor> read_state(size_t index) override { return inner_->read_state(index); }
  Status write_state(size_t index, const Tensor& value) override { return inner_->write_state(index, value); }
  Status reset_states() override { return inner_->reset_states(); }
  Status trim() override { return inner_->trim(); }
  Status wait() override { return inner_->wait(); }
  [[nodiscard]] const std::vector<std::shared_ptr<const Executable>>& variants() const override {
    return inner_->variants();
  }
  [[nodiscard]] int64_t arena_bytes() const override { return inner_->arena_bytes(); }
  Status add_variant(std::shared_ptr<const Executable> executable, size_t at) override {
    return inner_->add_variant(std::move(executable), at);
  }
  Status remove_variant(const Executable& executable) override { return inner_->remove_variant(executable); }

private:
  // `stream`: of the caller's, where it gives one.
  template <class Find, class Body>
  std::invoke_result_t<Body, RunStats*> use(const char* doing, const Find& given, RunStats* stats, const Body& body,
                                            void* const* stream = nullptr) {
    using Outcome = std::invoke_result_t<Body, RunStats*>;
    return guarded(doing, [&]() -> Outcome {
      TESSERA_ASSIGN(auto alone, in_use_.begin("the executor",
                                               "each thread takes an executor of its own: Session::new_executor()"));
      const Stopwatch watch;
      RunStats before, local;
      const bool changes = pool_->specializes() || pool_->generation() != generation_;
      if (changes && !(stream && inner_->captures(*stream))) {
        if (pool_->specializes())
          if (const auto sizes = sizes_of(given)) TESSERA_TRY(pool_->specialize(*sizes, before));
        before.renewals = take_changes();
      }
      RunStats* const counted = stats || profiles_ ? stats : &local;
      auto outcome = body(counted);
      if (const int swaps = before.renewals + (counted ? counted->renewals + counted->replans : 0); swaps > 0)
        pool_->count_swaps(swaps);
      if (!stats) return outcome;
      stats->renewals += before.renewals;
      if (before.recompile_ms > 0) {
        stats->recompiles += before.recompiles;
        stats->recompile_ms += before.recompile_ms;
        stats->begin_ms -= watch.ms() - stats->total_ms;
        stats->total_ms = watch.ms();
      }
      stats->variant = index_of(static_cast<size_t>(stats->variant));
      return outcome;
    });
  }

  // The sizes of a call; nothing when the inputs are not what the model declares, which the executor will say.
  template <class Find>
  [[nodiscard]] std::optional<Sizes> sizes_of(const Find& find) const {
    const Executable& generic = *pool_->generic();
    Sizes sizes;
    for (size_t i = 0; i < generic.call_inputs(); ++i) {
      const Binding& b = generic.inputs[i];
      const auto& buffer = generic.buffers[static_cast<size_t>(b.buffer)];
      const Given given = find(i, b.name);
      if (!given.dims || given.dtype != buffer.dtype) return std::nullopt;
      const auto rank = generic.env->find(rank_symbol(b.name));
      if (rank) sizes.emplace(rank->symbol_name(), static_cast<int64_t>(given.dims->size()));
      if (!rank && given.dims->size() != buffer.shape.size()) return std::nullopt;
      for (size_t d = 0; d < std::min(buffer.shape.size(), given.dims->size()); ++d) {
        if (!buffer.shape[d].is_symbol()) continue;
        const auto [at, fresh] = sizes.emplace(buffer.shape[d].symbol_name(), (*given.dims)[d]);
        if (!fresh && at->second != (*given.dims)[d]) return std::nullopt;
      }
    }
    return sizes;
  }

  [[nodiscard]] bool has(const SessionVariant& v) const {
    const auto& mine = inner_->variants();
    return std::any_of(mine.begin(), mine.end(), [&](const auto& e) { return holds(v, *e); });
  }

  // Takes the variants that were made since the last call, and leaves those that were evicted. Returns how many
  // specialized ones came and went: those that may answer calls that others answered before.
  int take_changes() {
    const uint64_t now = pool_->generation();
    if (now == generation_) return 0;
    generation_ = now;
    const auto order = pool_->order();
    const auto mine = inner_->variants(); // a copy: it changes
    std::vector<std::shared_ptr<const Executable>> wanted;
    int swaps = 0;
    for (const auto& v : order.variants) {
      const auto has = std::find_if(mine.begin(), mine.end(), [&](const auto& e) { return holds(*v, *e); });
      wanted.push_back(has == mine.end() ? v->executable : *has); // a successor comes by itself
      swaps += v->specialized && has == mine.end() ? 1 : 0;
    }
    for (const auto& e : mine) // specialized ones alone are evicted
      swaps += std::find(wanted.begin(), wanted.end(), e) == wanted.end() ? 1 : 0;
    const Status done = inner_->arrange(wanted, order.generic);
    if (done.ok()) return swaps;
    TESSERA_LOGF(LogChannel::Recompiles, "an executor keeps its variants: " + done.error().str());
    return 0;
  }

  // In the pool's order, of the inner executor's variant; what was looked up last is remembered.
  [[nodiscard]] int index_of(size_t variant) {
    const auto& mine = inner_->variants();
    if (variant >= mine.size()) return 0;
    const uint64_t now = pool_->generation();
    if (looked_up_ != mine[variant].get() || looked_up_in_ != now) {
      index_ = static_cast<int>(pool_->index_of(*mine[variant]));
      looked_up_ = mine[variant].get();
      looked_up_in_ = now;
    }
    return index_;
  }

  const std::shared_ptr<VariantPool> pool_;
  InUse in_use_;
  uint64_t generation_ = 0; // of the pool, at the last call
  bool profiles_ = false;
  const Executable* looked_up_ = nullptr;
  uint64_t looked_up_in_ = 0;
  int index_ = 0;
  std::unique_ptr<VariantExecutor> inner_; // destroyed first
};

} // namespace

Result<std::unique_ptr<Executor>> make_session_executor(std::shared_ptr<VariantPool> pool,
                                                        std::shared_ptr<BackgroundWork> work) {
  auto executor = std::make_unique<SessionExecutor>(std::move(pool));
  TESSERA_TRY(executor->open(std::move(work)));
  return std::unique_ptr<Executor>(std::move(executor));
}

} // namespace tessera
