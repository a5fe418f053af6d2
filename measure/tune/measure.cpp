#include "measure/tune/measure.h"
#include "base/stopwatch.h"
#include "codegen/driver/devices.h"
#include "codegen/schedule/legal.h"
#include "runtime/cuda/timing.h"
#include <algorithm>

namespace tessera {
namespace {

// find() returns the same for every nest: one candidate, or nothing.
class OnlyThis final : public TunedSchedules {
public:
  OnlyThis() = default;
  explicit OnlyThis(TunedSchedule t) : list_{std::move(t)} { list_[0].measured = "a candidate"; }
  std::vector<TunedSchedule> find(const Hash128&) const override { return list_; }

private:
  std::vector<TunedSchedule> list_;
};

// Makes a kernel of `code` a model at fixed sizes: buffers it reads are inputs, buffers it writes are outputs.
class KernelModel {
public:
  KernelModel(const MeasuredNest& what, const DeviceCode& code, const std::string& target)
      : what_(what), code_(code), target_(target) {}

  Result<std::shared_ptr<const Executable>> make(const GeneratedKernel& kernel) const {
    auto exe = std::make_shared<Executable>();
    exe->model_name = what_.name;
    exe->env = std::make_shared<ShapeEnv>();
    exe->target = target_;
    exe->code = code_.code;
    const ScheduledKernel& scheduled = kernel.general();
    for (size_t b = 0; b < scheduled.buffers.size(); ++b) {
      const ValueId value = scheduled.buffers[b];
      const TensorType& type = what_.graph.type(value);
      BufferInfo info;
      info.name = "b" + std::to_string(b);
      info.kind = scheduled.written[b] ? BufferInfo::Kind::Output : BufferInfo::Kind::Input;
      info.dtype = type.dtype;
      for (const SymExpr& d : type.shape) {
        TESSERA_ASSIGN(SymExpr n, number(d));
        info.shape.push_back(n);
      }
      (scheduled.written[b] ? exe->outputs : exe->inputs).push_back({info.name, static_cast<BufferId>(b)});
      exe->buffers.push_back(std::move(info));
    }
    auto buffer = [&](ValueId v) {
      auto it = std::find(scheduled.buffers.begin(), scheduled.buffers.end(), v);
      return static_cast<BufferId>(it - scheduled.buffers.begin());
    };
    KernelLaunch all = kernel.launch(what_.name, buffer);
    KernelLaunch chosen = all;
    for (const KernelLaunch& a : all.alternatives)
      if (holds(a.conditions, what_.sizes)) {
        chosen = a;
        break;
      }
    // Cooperative blocks need a fallback kernel, for a grid that is not resident all at once.
    if (!chosen.cooperative_blocks.is_const(0)) {
      all.alternatives = {std::move(chosen)};
      chosen = std::move(all);
    } else {
      chosen.alternatives.clear();
    }
    TESSERA_TRY(at_sizes(chosen, *exe));
    for (KernelLaunch& a : chosen.alternatives) TESSERA_TRY(at_sizes(a, *exe));
    exe->steps.emplace_back(std::move(chosen));
    return std::shared_ptr<const Executable>(std::move(exe));
  }

private:
  Result<SymExpr> number(const SymExpr& e) const {
    TESSERA_ASSIGN(int64_t n, e.eval(what_.sizes));
    return SymExpr(n);
  }
  // Evaluates the launch's expressions, drops its conditions and links its object.
  Status at_sizes(KernelLaunch& k, Executable& exe) const {
    k.conditions.clear();
    Status status;
    static_cast<LaunchSizes<SymExpr>&>(k) = convert_sizes<SymExpr>(k, [&](const LaunchField&, const SymExpr& size) {
      auto n = number(size);
      if (!n.ok()) status = n.error();
      return n.ok() ? *n : size;
    });
    TESSERA_TRY(std::move(status));
    if (!code_.objects.empty()) exe.objects.push_back(code_.objects[static_cast<size_t>(k.object)]);
    k.object = std::max(0, static_cast<int>(exe.objects.size()) - 1);
    return {};
  }

  const MeasuredNest& what_;
  const DeviceCode& code_;
  const std::string& target_;
};

// One executable for each candidate, or the error of its compilation.
class Models {
public:
  using Model = Result<std::shared_ptr<const Executable>>;
  static Result<std::unique_ptr<Models>> create(const MeasuredNest& what, const CompileOptions& given) {
    std::unique_ptr<Models> m(new Models(what, given));
    m->options_.tuned = nullptr;
    m->options_.keep_texts = false;
    TESSERA_ASSIGN(m->backend_, make_backend(m->options_));
    m->target_ = m->backend_->target();
    m->made_.resize(what.candidates.size());
    m->registers_.assign(what.candidates.size(), -1);
    m->only_.emplace_back(); // empty: the default schedule
    for (size_t c = 1; c < what.candidates.size(); ++c) m->only_.emplace_back(what.candidates[c].tuned);
    return m;
  }

  // Compiles them together, on all threads.
  Status make_all() {
    TESSERA_ASSIGN(DeviceCode all, compile(0, only_.size()));
    if (!all.failed.empty()) return {}; // get() compiles each separately
    for (size_t c = 0; c < only_.size(); ++c) {
      const KernelReport& told = all.kernels[c].report;
      registers_[c] = registers(told);
      if (c == 0 || !told.tuned.empty()) made_[c] = KernelModel(what_, all, target_).make(all.kernels[c]);
    }
    return {};
  }
  const Model& get(size_t c) {
    if (made_[c]) return *made_[c];
    auto one = compile(c, 1);
    if (one.ok() && !one->failed.empty()) one = std::move(one->failed[0].error);
    if (one.ok()) registers_[c] = registers(one->kernels[0].report);
    if (!one.ok())
      made_[c] = one.error();
    else if (c == 0 || !one->kernels[0].report.tuned.empty())
      made_[c] = KernelModel(what_, *one, target_).make(one->kernels[0]);
    else
      made_[c] = Diagnostic(ErrorCode::CodegenError,
                            one->warnings.empty() ? "the schedule does not fit the nest" : one->warnings.back());
    return *made_[c];
  }

  [[nodiscard]] int registers(size_t c) const { return registers_[c]; }

private:
  // Registers of the preferred alternative, which is the candidate.
  static int registers(const KernelReport& r) {
    return r.alternatives.empty() ? r.registers : r.alternatives.front().registers;
  }
  Models(const MeasuredNest& what, const CompileOptions& options)
      : what_(what), options_(options), cache_(options.cache_dir, options.cache) {}
  Result<DeviceCode> compile(size_t first, size_t count) {
    std::vector<KernelRequest> requests;
    for (size_t c = first; c < first + count; ++c)
      requests.push_back({what_.name + "." + std::to_string(c), &what_.nest, {}, &only_[c]});
    return backend_->compile(what_.graph, requests, cache_, options_);
  }

  const MeasuredNest what_;
  CompileOptions options_;
  Cache cache_;
  std::unique_ptr<Backend> backend_;
  std::string target_;
  std::vector<OnlyThis> only_;
  std::vector<std::optional<Model>> made_;
  std::vector<int> registers_; // registers per thread, by candidate
};

class DeviceMeasurer final : public Measurer {
public:
  static Result<std::unique_ptr<Measurer>> create(const MeasuredNest& what, const CompileOptions& options,
                                                  const MeasureOptions& how) {
    auto m = std::make_unique<DeviceMeasurer>();
    TESSERA_ASSIGN(m->models_, Models::create(what, options));
    if (!how.compile_lazily) TESSERA_TRY(m->models_->make_all());
    const auto& first = m->models_->get(0);
    if (!first.ok()) return first.error();
    m->executors_.resize(what.candidates.size());
    const Executable& exe = **first;
    TESSERA_TRY(fits(exe, how.max_bytes, "is the limit for measuring"));
    int64_t sets = 1;
    if (options.device == "cuda") {
      TESSERA_ASSIGN(m->watch_, cuda::Stopwatch::create());
      TESSERA_ASSIGN(const int64_t free, m->watch_->free_bytes());
      if (how.max_bytes != INT64_MAX) TESSERA_TRY(fits(exe, free / 4, "is a quarter of the GPU's free memory"));
      sets = m->watch_->sets(static_cast<int64_t>(bytes(exe)), std::min(how.max_bytes, free / 4));
    } else {
      m->pool_ = ThreadPool::create(options.threads);
    }
    m->sets_.resize(static_cast<size_t>(sets));
    // Buffers are in the order of the kernel's parameters, loads in the order of their values.
    for (size_t operand = 0; operand < what.nest.loads.size(); ++operand) {
      TESSERA_ASSIGN(Tensor data, random_input(what, operand));
      TESSERA_TRY(m->input(exe, operand, std::move(data), what));
    }
    for (const Binding& b : exe.outputs) {
      const BufferInfo& info = exe.buffers[static_cast<size_t>(b.buffer)];
      Dims dims;
      for (const SymExpr& d : info.shape) dims.push_back(d.const_value());
      if (m->watch_) {
        for (DeviceSet& set : m->sets_) {
          TESSERA_ASSIGN(auto memory, m->watch_->allocate(info.dtype, dims));
          set.outputs.push_back(memory);
        }
      } else {
        TESSERA_ASSIGN(auto memory, Tensor::create(info.dtype, dims));
        m->outputs_.push_back(std::move(memory));
      }
    }
    return std::unique_ptr<Measurer>(std::move(m));
  }

  Status prepare(size_t candidate) override {
    TESSERA_TRY(executor(candidate));
    return {};
  }

  int registers(size_t candidate) override { return models_->registers(candidate); }

  Result<double> time_us(size_t candidate) override {
    if (watch_) return time_us(candidate, sets_[turn_++ % sets_.size()]);
    TESSERA_ASSIGN(Executor * executor, this->executor(candidate));
    const Stopwatch watch;
    TESSERA_TRY(executor->run(inputs_, nullptr, &outputs_));
    return watch.us();
  }

  Result<std::string> difference(size_t candidate) override {
    if (expected_.empty()) {
      TESSERA_ASSIGN(expected_, results(0));
    }
    TESSERA_ASSIGN(auto actual, results(candidate));
    for (size_t i = 0; i < actual.size(); ++i)
      if (auto differs = tessera::difference(actual[i], expected_[i]); !differs.empty())
        return "output " + std::to_string(i) + ": " + differs;
    return std::string();
  }

private:
  // Inputs and outputs of one call on the GPU. All sets have the same contents.
  struct DeviceSet {
    std::map<std::string, DeviceTensor> inputs;
    std::vector<DeviceTensor> outputs;
  };

  static double bytes(const Executable& exe) {
    double bytes = 0;
    for (const BufferInfo& b : exe.buffers) {
      double elements = 1;
      for (const SymExpr& d : b.shape) elements *= static_cast<double>(d.const_value());
      bytes += elements * info(b.dtype).bits / 8;
    }
    return bytes;
  }
  static Status fits(const Executable& exe, int64_t limit, const char* what) {
    const double bytes = DeviceMeasurer::bytes(exe);
    if (bytes <= static_cast<double>(limit)) return {};
    return Diagnostic(ErrorCode::UnsupportedFeature, "its data are " + std::to_string(static_cast<int64_t>(bytes)) +
                                                         " bytes, and " + std::to_string(limit) + " " + what);
  }
  // Finds the buffer of the nest's `operand` and sets its contents.
  Status input(const Executable& exe, size_t operand, Tensor data, const MeasuredNest& what) {
    std::vector<ValueId> seen; // the domain has one buffer for each distinct operand
    for (size_t i = 0; i < what.nest.loads.size(); ++i)
      if (std::find(seen.begin(), seen.end(), what.nest.loads[i]) == seen.end()) seen.push_back(what.nest.loads[i]);
    auto at = std::find(seen.begin(), seen.end(), what.nest.loads[operand]) - seen.begin();
    if (static_cast<size_t>(at) >= exe.inputs.size()) return {};
    const std::string& name = exe.inputs[static_cast<size_t>(at)].name;
    if (watch_) {
      TESSERA_ASSIGN(const DeviceTensor first, watch_->upload(data));
      for (DeviceSet& set : sets_) {
        TESSERA_ASSIGN(set.inputs[name], &set == &sets_[0] ? first : watch_->upload(first));
      }
    } else {
      inputs_[name] = std::move(data);
    }
    return {};
  }
  Result<Executor*> executor(size_t candidate) {
    auto& e = executors_[candidate];
    if (!e) {
      const auto& model = models_->get(candidate);
      if (!model.ok()) return model.error();
      ExecutorOptions options;
      options.pool = pool_;
      TESSERA_ASSIGN(e, Executor::create({*model}, options));
    }
    return e.get();
  }
  Result<double> time_us(size_t candidate, const DeviceSet& set) {
    TESSERA_ASSIGN(Executor * executor, this->executor(candidate));
    TESSERA_ASSIGN(double ms, watch_->time([&](void* stream) {
      return executor->run_on_device(set.inputs, set.outputs, stream);
    }));
    return ms * 1e3;
  }
  Result<std::vector<Tensor>> results(size_t candidate) {
    if (!watch_) {
      TESSERA_ASSIGN(Executor * executor, this->executor(candidate));
      return executor->run(inputs_);
    }
    const DeviceSet& set = sets_[turn_++ % sets_.size()];
    for (const DeviceTensor& t : set.outputs) TESSERA_TRY(watch_->poison(t));
    TESSERA_TRY(time_us(candidate, set));
    std::vector<Tensor> out;
    for (const DeviceTensor& t : set.outputs) {
      TESSERA_ASSIGN(Tensor host, watch_->download(t));
      out.push_back(std::move(host));
    }
    return out;
  }

  std::unique_ptr<Models> models_;
  std::vector<std::unique_ptr<Executor>> executors_; // by candidate
  std::unique_ptr<cuda::Stopwatch> watch_;           // GPU only
  std::shared_ptr<ThreadPool> pool_;                 // host only
  std::map<std::string, Tensor> inputs_;             // host only
  std::vector<Tensor> outputs_, expected_;
  std::vector<DeviceSet> sets_; // GPU only
  size_t turn_ = 0;             // next set, modulo their number
};

} // namespace

Result<std::unique_ptr<Measurer>> make_measurer(const MeasuredNest& what, const CompileOptions& options,
                                                const MeasureOptions& how) {
  return DeviceMeasurer::create(what, options, how);
}

} // namespace tessera
