#include "codegen/tune/measure.h"
#include "runtime/cuda/timing.h"
#include <algorithm>
#include <chrono>

namespace tessera {
namespace {

// What find() yields for every nest: one candidate, or nothing.
class OnlyThis final : public TunedSchedules {
public:
  OnlyThis() = default;
  explicit OnlyThis(TunedSchedule t) : list_{std::move(t)} { list_[0].schedule.measured = "a candidate"; }
  std::vector<TunedSchedule> find(const Hash128&) const override { return list_; }

private:
  std::vector<TunedSchedule> list_;
};

bool holds(const KernelLaunch& k, const CallSizes& sizes) {
  return std::all_of(k.conditions.begin(), k.conditions.end(), [&](const SizeCondition& c) {
    auto v = c.value.eval(sizes);
    return v.ok() && *v >= c.min && *v <= c.max && *v % c.multiple_of == 0;
  });
}

// A model that is kernel `index` of `code` at fixed sizes: what it reads are inputs, what it writes are outputs.
class KernelModel {
public:
  KernelModel(const MeasuredNest& what, const DeviceCode& code, const std::string& target)
      : what_(what), code_(code), target_(target) {}

  Result<std::shared_ptr<const Executable>> make(int index) const {
    auto exe = std::make_shared<Executable>();
    exe->model_name = what_.name;
    exe->env = std::make_shared<ShapeEnv>();
    exe->target = target_;
    exe->code = code_.code;
    const ScheduledKernel& scheduled = code_.scheduled(index);
    for (size_t b = 0; b < scheduled.buffers.size(); ++b) {
      const ValueId value = scheduled.buffers[b];
      const TensorType& type = what_.graph.type(value);
      BufferInfo info;
      info.name = "b" + std::to_string(b);
      info.kind = scheduled.buffer_written[b] ? BufferInfo::Kind::Output : BufferInfo::Kind::Input;
      info.dtype = type.dtype;
      for (const SymExpr& d : type.shape) {
        TESSERA_ASSIGN(SymExpr n, number(d));
        info.shape.push_back(n);
      }
      (scheduled.buffer_written[b] ? exe->outputs : exe->inputs).push_back({info.name, static_cast<BufferId>(b)});
      exe->buffers.push_back(std::move(info));
    }
    auto buffer = [&](ValueId v) {
      auto it = std::find(scheduled.buffers.begin(), scheduled.buffers.end(), v);
      return static_cast<BufferId>(it - scheduled.buffers.begin());
    };
    KernelLaunch all = code_.launch(index, what_.name, buffer);
    KernelLaunch chosen = all;
    for (const KernelLaunch& a : all.alternatives)
      if (holds(a, what_.sizes)) {
        chosen = a;
        break;
      }
    chosen.alternatives.clear();
    chosen.conditions.clear();
    for (SymExpr* e : {&chosen.grid, &chosen.work_per_program, &chosen.scratch_bytes}) {
      TESSERA_ASSIGN(*e, number(*e));
    }
    for (SymExpr& e : chosen.sizes) {
      TESSERA_ASSIGN(e, number(e));
    }
    if (!code_.objects.empty()) exe->objects = {code_.objects[static_cast<size_t>(chosen.object)]};
    chosen.object = 0;
    exe->steps.emplace_back(std::move(chosen));
    return std::shared_ptr<const Executable>(std::move(exe));
  }

private:
  Result<SymExpr> number(const SymExpr& e) const {
    TESSERA_ASSIGN(int64_t n, e.eval(what_.sizes));
    return SymExpr(n);
  }

  const MeasuredNest& what_;
  const DeviceCode& code_;
  const std::string& target_;
};

// One executable for each candidate, or why it has none.
Result<std::vector<Result<std::shared_ptr<const Executable>>>> models(const MeasuredNest& what,
                                                                      const CompileOptions& given) {
  CompileOptions options = given;
  options.tuned = nullptr;
  options.keep_texts = false;
  TESSERA_ASSIGN(auto backend, Backend::create(options));
  ObjectCache cache(options.cache_dir, options.cache);
  std::vector<OnlyThis> only(1); // none for the rules' choice
  for (size_t c = 1; c < what.candidates.size(); ++c) only.emplace_back(what.candidates[c].tuned);
  auto compile = [&](size_t first, size_t count) {
    std::vector<KernelRequest> requests;
    for (size_t c = first; c < first + count; ++c)
      requests.push_back({what.name + "." + std::to_string(c), &what.nest, {}, &only[c]});
    return backend->compile(what.graph, requests, cache, options);
  };
  const std::string target = backend->target();
  std::vector<Result<std::shared_ptr<const Executable>>> out;
  TESSERA_ASSIGN(DeviceCode all, compile(0, only.size()));
  for (size_t c = 0; c < only.size(); ++c) {
    if (c == 0 || !all.reports[c].tuned.empty()) {
      out.push_back(KernelModel(what, all, target).make(static_cast<int>(c)));
      continue;
    }
    // One that does not compile takes all of them with it: once more by itself, for the others' sake.
    auto one = compile(c, 1);
    if (one.ok() && !one->reports[0].tuned.empty())
      out.push_back(KernelModel(what, *one, target).make(0));
    else
      out.emplace_back(Diagnostic(ErrorCode::CodegenError, !one.ok() ? one.error().message
                                                           : one->warnings.empty()
                                                               ? std::string("the schedule does not fit the nest")
                                                               : one->warnings.back()));
  }
  return out;
}

class DeviceMeasurer final : public Measurer {
public:
  static Result<std::unique_ptr<Measurer>> create(const MeasuredNest& what, const CompileOptions& options) {
    auto m = std::make_unique<DeviceMeasurer>();
    TESSERA_ASSIGN(m->models_, models(what, options));
    if (!m->models_[0].ok()) return m->models_[0].error();
    m->executors_.resize(m->models_.size());
    const Executable& exe = **m->models_[0];
    if (options.device == "cuda") {
      TESSERA_ASSIGN(m->watch_, cuda::Stopwatch::create());
    } else {
      m->pool_ = ThreadPool::create(options.threads);
    }
    // Buffers come in the order of the kernel's parameters, loads by their value.
    for (size_t operand = 0; operand < what.nest.loads.size(); ++operand) {
      TESSERA_ASSIGN(Tensor data, made_up(what, operand));
      TESSERA_TRY(m->input(exe, operand, std::move(data), what));
    }
    for (const Binding& b : exe.outputs) {
      const BufferInfo& info = exe.buffers[static_cast<size_t>(b.buffer)];
      Dims dims;
      for (const SymExpr& d : info.shape) dims.push_back(d.const_value());
      if (m->watch_) {
        TESSERA_ASSIGN(auto memory, m->watch_->allocate(info.dtype, dims));
        m->device_outputs_.push_back(memory);
      } else {
        TESSERA_ASSIGN(auto memory, Tensor::create(info.dtype, dims));
        m->outputs_.push_back(std::move(memory));
      }
    }
    return std::unique_ptr<Measurer>(std::move(m));
  }

  Result<double> time_us(size_t candidate) override {
    TESSERA_ASSIGN(Executor * executor, this->executor(candidate));
    if (watch_) {
      TESSERA_ASSIGN(double ms, watch_->time([&](void* stream) {
        return executor->run_on_device(device_inputs_, device_outputs_, stream);
      }));
      return ms * 1e3;
    }
    auto start = std::chrono::steady_clock::now();
    TESSERA_TRY(executor->run(inputs_, nullptr, &outputs_));
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
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
  // `operand` of the nest is the buffer that shows its value.
  Status input(const Executable& exe, size_t operand, Tensor data, const MeasuredNest& what) {
    std::vector<ValueId> seen; // the domain's buffers are the operands, each once
    for (size_t i = 0; i < what.nest.loads.size(); ++i)
      if (std::find(seen.begin(), seen.end(), what.nest.loads[i]) == seen.end()) seen.push_back(what.nest.loads[i]);
    auto at = std::find(seen.begin(), seen.end(), what.nest.loads[operand]) - seen.begin();
    if (static_cast<size_t>(at) >= exe.inputs.size()) return {};
    const std::string& name = exe.inputs[static_cast<size_t>(at)].name;
    if (watch_) {
      TESSERA_ASSIGN(device_inputs_[name], watch_->upload(data));
    } else {
      inputs_[name] = std::move(data);
    }
    return {};
  }
  Result<Executor*> executor(size_t candidate) {
    if (!models_[candidate].ok()) return models_[candidate].error();
    auto& e = executors_[candidate];
    if (!e) {
      ExecutorOptions options;
      options.pool = pool_;
      TESSERA_ASSIGN(e, Executor::create({*models_[candidate]}, options));
    }
    return e.get();
  }
  Result<std::vector<Tensor>> results(size_t candidate) {
    if (!watch_) {
      TESSERA_ASSIGN(Executor * executor, this->executor(candidate));
      return executor->run(inputs_);
    }
    for (const DeviceTensor& t : device_outputs_) TESSERA_TRY(watch_->poison(t));
    TESSERA_TRY(time_us(candidate));
    std::vector<Tensor> out;
    for (const DeviceTensor& t : device_outputs_) {
      TESSERA_ASSIGN(Tensor host, watch_->download(t));
      out.push_back(std::move(host));
    }
    return out;
  }

  std::vector<Result<std::shared_ptr<const Executable>>> models_; // by candidate
  std::vector<std::unique_ptr<Executor>> executors_;
  std::unique_ptr<cuda::Stopwatch> watch_; // of a GPU
  std::shared_ptr<ThreadPool> pool_;       // of the host
  std::map<std::string, Tensor> inputs_;
  std::map<std::string, DeviceTensor> device_inputs_;
  std::vector<Tensor> outputs_, expected_;
  std::vector<DeviceTensor> device_outputs_;
};

} // namespace

Result<std::unique_ptr<Measurer>> make_measurer(const MeasuredNest& what, const CompileOptions& options) {
  return DeviceMeasurer::create(what, options);
}

} // namespace tessera
