// Convolutions by cuDNN's graph API: the graph, an engine for it, the plan of a call.
#include "base/log.h"
#include "runtime/cuda/cudnn_graph.h"
#include "runtime/cuda/library_choices.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

constexpr int64_t kBaseAlignment = 16;

class ConvGraph : GraphBuilder {
public:
  ConvGraph(const Cudnn& library, const ConvProblem& problem, const ConvGraphOptions& options)
      : GraphBuilder(library, options.alignment), problem_(problem), options_(options),
        type_(*cudnn_type(options.dtype)) {}

  Result<OperationGraph> run() {
    const auto* fused = options_.fused;
    bool follows = fused && (fused->bias || options_.zero_bias || fused->residual || options_.residual_is_result ||
                             fused->activation != LibraryEpilogue::Activation::None);
    TESSERA_ASSIGN(size_t x, tensor(problem_.x, ConvRole::X));
    TESSERA_ASSIGN(size_t w, tensor(problem_.w, ConvRole::W));
    TESSERA_ASSIGN(size_t y, tensor(problem_.y, ConvRole::Y));
    // Values between operations are in f32 and have the layout of y.
    size_t sum = y;
    if (follows) {
      TESSERA_ASSIGN(sum, sum_of_result());
    }
    TESSERA_TRY(convolution(x, w, sum, fused ? fused->alpha : 1));
    if (!follows) return std::move(graph_);
    // The order in which the library's precompiled kernels compute: residual, bias, activation.
    std::vector<std::function<Status(size_t from, size_t to)>> steps;
    if (fused->residual || options_.residual_is_result)
      steps.emplace_back([&](size_t from, size_t to) -> Status {
        TESSERA_ASSIGN(size_t residual, tensor(problem_.y, ConvRole::Residual));
        return pointwise(CUDNN_POINTWISE_ADD, from, residual, to, fused->residual ? 1 : 0);
      });
    if (fused->bias || options_.zero_bias)
      steps.emplace_back([&](size_t from, size_t to) -> Status {
        ConvTensor along{Dims(problem_.y.dims.size(), 1), Dims(problem_.y.dims.size(), 1)};
        along.dims[1] = problem_.y.dims[1];
        along.strides = Dims(along.dims.size(), 1);
        for (size_t d = 0; d < along.dims.size(); ++d)
          if (d == 0 || (d > 1 && problem_.channels_last)) along.strides[d] = along.dims[1];
        TESSERA_ASSIGN(size_t bias, tensor(along, ConvRole::Bias));
        return pointwise(CUDNN_POINTWISE_ADD, from, bias, to, 1);
      });
    if (fused->activation != LibraryEpilogue::Activation::None)
      steps.emplace_back([&](size_t from, size_t to) { return activation(*fused, from, to); });
    for (size_t i = 0; i < steps.size(); ++i) {
      size_t to = y;
      if (i + 1 < steps.size()) {
        TESSERA_ASSIGN(to, sum_of_result());
      }
      TESSERA_TRY(steps[i](sum, to));
      sum = to;
    }
    return std::move(graph_);
  }

private:
  Result<size_t> tensor(const ConvTensor& t, ConvRole role) {
    return GraphBuilder::tensor({t.dims, t.strides}, type_, static_cast<int64_t>(role));
  }
  Result<size_t> sum_of_result() { return between({problem_.y.dims, problem_.y.strides}); }

  Status convolution(size_t x, size_t w, size_t y, double scale) {
    TESSERA_ASSIGN(Descriptor d, Descriptor::create(library_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
    TESSERA_TRY(d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, static_cast<int64_t>(problem_.spatial())));
    TESSERA_TRY(d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
    TESSERA_TRY(d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION));
    TESSERA_TRY(d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, problem_.strides));
    TESSERA_TRY(d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, problem_.dilations));
    TESSERA_TRY(d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, problem_.pads_begin));
    TESSERA_TRY(d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, problem_.pads_end));
    TESSERA_ASSIGN(size_t window, finalized(std::move(d)));
    auto alpha = static_cast<float>(scale), beta = 0.0F;
    if (problem_.transposed) {
      TESSERA_ASSIGN(Descriptor op,
                     Descriptor::create(library_, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR));
      TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, part(window)));
      TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, part(x)));
      TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, part(w)));
      TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, part(y)));
      TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, alpha));
      TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, beta));
      return operation(std::move(op));
    }
    TESSERA_ASSIGN(Descriptor op, Descriptor::create(library_, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, part(window)));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, part(x)));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, part(w)));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, part(y)));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, alpha));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, beta));
    return operation(std::move(op));
  }

  // to = from + scale * other
  Status pointwise(cudnnPointwiseMode_t mode, size_t from, size_t other, size_t to, float scale) {
    TESSERA_ASSIGN(Descriptor d, function(mode));
    TESSERA_ASSIGN(size_t f, finalized(std::move(d)));
    return apply(f, from, other, std::nullopt, to, Factors{1, scale});
  }
  Status activation(const LibraryEpilogue& e, size_t from, size_t to) {
    using Activation = LibraryEpilogue::Activation;
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_RELU_FWD; // and Clip
    switch (e.activation) {
    case Activation::None:
    case Activation::Relu:
    case Activation::Clip: break;
    case Activation::GeluTanh: mode = CUDNN_POINTWISE_GELU_APPROX_TANH_FWD; break;
    case Activation::GeluErf: mode = CUDNN_POINTWISE_GELU_FWD; break;
    case Activation::Sigmoid: mode = CUDNN_POINTWISE_SIGMOID_FWD; break;
    case Activation::Silu: mode = CUDNN_POINTWISE_SWISH_FWD; break;
    case Activation::Tanh: mode = CUDNN_POINTWISE_TANH_FWD; break;
    }
    TESSERA_ASSIGN(Descriptor d, function(mode));
    if (e.activation == Activation::Clip) {
      TESSERA_TRY(d.set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, e.clip_low));
      TESSERA_TRY(d.set(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, e.clip_high));
    }
    TESSERA_ASSIGN(size_t f, finalized(std::move(d)));
    return apply(f, from, std::nullopt, std::nullopt, to);
  }

  const ConvProblem& problem_;
  const ConvGraphOptions& options_;
  cudnnDataType_t type_;
};

// ---- the plan of a call

class ConvPlan final : public CudaLibraryPlan {
public:
  ConvPlan(Context& context, std::shared_ptr<Cudnn> library) : context_(context), library_(std::move(library)) {}

  [[nodiscard]] std::shared_ptr<const void> used_by_graphs() const override { return engine; } // and its kernels
  Status run(CUstream stream, void* const* pointers, void* workspace, bool) const override {
    if (zero_bytes > 0) {
      auto at = reinterpret_cast<CUdeviceptr>(pointers[zero_buffer]) + static_cast<CUdeviceptr>(zero_offset);
      TESSERA_CUDA_TRY(context_, name, cuMemsetD8Async, at, 0, static_cast<size_t>(zero_bytes), stream);
      return {};
    }
    if (!engine) return {}; // no results
    std::vector<void*> data;
    for (const auto& t : tensors)
      data.push_back(t.fixed ? t.fixed : static_cast<std::byte*>(pointers[t.buffer]) + t.offset);
    return run_engine(*library_, name, *engine, stream, ids, data, workspace);
  }

  struct Bound {
    BufferId buffer;
    int64_t offset;        // bytes
    void* fixed = nullptr; // an address instead of a buffer
  };
  std::string name;
  std::vector<int64_t> ids;
  std::vector<Bound> tensors;
  BufferId zero_buffer = -1;
  int64_t zero_offset = 0, zero_bytes = 0;

private:
  Context& context_;
  std::shared_ptr<Cudnn> library_; // outlives its engine

public:
  std::shared_ptr<const ConvEngine> engine;
};

class ConvPlanner {
public:
  ConvPlanner(const CudaPlanContext& context, const ConvCall& call, std::span<const Operand> operands)
      : context_(context), call_(call), operands_(operands) {}

  Result<std::unique_ptr<CudaLibraryPlan>> run() {
    TESSERA_ASSIGN(library_, Cudnn::of(context_.context));
    const Operand &x = operands_[0], &w = operands_[1], &y = operands_[2];
    if (!cudnn_type(x.dtype) || w.dtype != x.dtype || y.dtype != x.dtype)
      return refuse("it takes f16, bf16 and f32, operands and result alike");
    size_t next = 3;
    if (call_.fused && call_.fused->bias) bias_ = &operands_[next++];
    if (call_.fused && call_.fused->residual) residual_ = &operands_[next++];
    TESSERA_ASSIGN(problem_, describe_conv(call_, x, w, y, context_.name));
    auto plan = std::make_unique<ConvPlan>(context_.context, library_);
    plan->name = "running '" + context_.name + "'";
    if (problem_.empty) return std::unique_ptr<CudaLibraryPlan>(std::move(plan));
    if (problem_.of_nothing) {
      if (call_.fused && !context_.can_finish) return refuse("a sum over nothing takes no epilogue");
      plan->zero_buffer = y.buffer;
      plan->zero_offset = bytes(y.offset);
      plan->zero_bytes = bytes(1);
      for (int64_t n : y.shape) plan->zero_bytes *= n;
      plan->epilogue_done = !call_.fused;
      plan->calls = 0;
      return std::unique_ptr<CudaLibraryPlan>(std::move(plan));
    }
    TESSERA_ASSIGN(ConvSolution solution, library_->solution(key(problem_), [&] { return solve(); }));
    if (!solution.engine) return refuse("it has no engine for " + key(problem_));
    void* zeros = nullptr;
    if (solution.form.zero_bias) {
      TESSERA_ASSIGN(zeros, library_->zeros(context_.context, bytes(y.shape[1])));
    }
    plan->engine = solution.engine;
    plan->workspace_bytes = plan->engine->workspace_bytes;
    plan->epilogue_done = solution.form.fused || !call_.fused;
    bind(*plan, solution.form, zeros);
    if (!plan->epilogue_done)
      TESSERA_LOGF(LogChannel::Perf, "'" + context_.name + "': a kernel computes the epilogue, cuDNN does not");
    if (solution.form.compiled)
      TESSERA_LOGF(LogChannel::Perf, "'" + context_.name + "': cuDNN compiled a kernel for it at run time");
    return std::unique_ptr<CudaLibraryPlan>(std::move(plan));
  }

private:
  [[nodiscard]] int64_t bytes(int64_t elements) const { return elements * info(operands_[0].dtype).bits / 8; }
  // Precompiled kernels first: with the epilogue as it is, then in the form that has a bias and a residual, then
  // without it; last what has to be compiled now.
  [[nodiscard]] std::vector<ConvForm> forms() const {
    std::vector<ConvForm> out;
    const bool has = call_.fused.has_value(), zeros = bytes(operands_[2].shape[1]) <= Cudnn::kZeros;
    for (bool compiled : {false, true}) {
      if (library_->compile_at_run_time && !compiled) continue;
      out.push_back({has, compiled, false, false});
      if (has && !compiled) {
        bool lacks_bias = !call_.fused->bias, lacks_residual = !call_.fused->residual;
        if (lacks_bias && zeros) out.push_back({true, false, false, true});
        if (lacks_residual && (zeros || !lacks_bias)) out.push_back({true, false, true, lacks_bias});
      }
      if (has && context_.can_finish) out.push_back({false, compiled, false, false});
    }
    return out;
  }

  Diagnostic refuse(const std::string& why) const {
    return Diagnostic(ErrorCode::UnsupportedFeature, "cuDNN does not compute '" + context_.name + "': " + why);
  }
  [[nodiscard]] int64_t alignment() const {
    int64_t bits = kBaseAlignment;
    for (const auto& o : operands_) bits |= bytes(o.offset);
    return bits & -bits;
  }

  void bind(ConvPlan& plan, const ConvForm& a, void* zeros) const {
    auto add = [&](ConvRole role, const Operand& o) {
      plan.ids.push_back(static_cast<int64_t>(role));
      plan.tensors.push_back({o.buffer, bytes(o.offset)});
    };
    add(ConvRole::X, operands_[0]);
    add(ConvRole::W, operands_[1]);
    add(ConvRole::Y, operands_[2]);
    if (!a.fused) return;
    if (bias_) add(ConvRole::Bias, *bias_);
    if (a.zero_bias) {
      plan.ids.push_back(static_cast<int64_t>(ConvRole::Bias));
      plan.tensors.push_back({-1, 0, zeros});
    }
    if (residual_) add(ConvRole::Residual, *residual_);
    if (a.residual_is_result) add(ConvRole::Residual, operands_[2]);
  }

  // All that a choice depends on; also what errors say.
  [[nodiscard]] std::string key(const ConvProblem& problem) const {
    std::string out(tessera::name(operands_[0].dtype));
    out += problem.transposed ? " transposed" : "";
    auto list = [&](const char* what, const std::vector<int64_t>& values) {
      out += std::string(" ") + what;
      for (size_t i = 0; i < values.size(); ++i) out += (i == 0 ? " " : ",") + std::to_string(values[i]);
    };
    list("x", problem.x.dims);
    list("at", problem.x.strides);
    list("w", problem.w.dims);
    list("at", problem.w.strides);
    list("y", problem.y.dims);
    list("strides", problem.strides);
    list("pads", problem.pads_begin);
    list("to", problem.pads_end);
    list("dilations", problem.dilations);
    out += " @" + std::to_string(alignment());
    if (call_.fused) {
      const auto& e = *call_.fused;
      out += " alpha " + std::to_string(e.alpha) + " activation " + std::to_string(static_cast<int>(e.activation)) +
             " " + std::to_string(e.clip_low) + " " + std::to_string(e.clip_high);
      if (bias_) out += " bias";
      if (residual_) out += " residual";
      if (context_.can_finish) out += " or without";
    }
    if (library_->compile_at_run_time) out += " compiled";
    if (call_.tf32 && operands_[0].dtype == DType::F32) out += " in TF32";
    return out;
  }

  // Which sizes of x differ from call to call.
  [[nodiscard]] VaryingDims varying() const {
    const SymShape& x = call_.x.shape;
    VaryingDims out;
    if (x.size() < 3) return out;
    out.batch = !x[0].is_const();
    out.spatial.resize(static_cast<size_t>(problem_.spatial()) - (x.size() - 2)); // one in front that the call has not
    for (size_t d = 2; d < x.size(); ++d) out.spatial.push_back(!x[d].is_const());
    return out;
  }

  // The engine that is chosen for sizes on the grid, where it takes these sizes; else the one for these.
  Result<ConvSolution> solve() const {
    const ConvProblem like = on_grid(problem_, varying());
    if (key(like) != key(problem_)) {
      TESSERA_ASSIGN(const Chosen near, chosen(like));
      TESSERA_ASSIGN(ConvSolution made, make(near.choice));
      if (made.engine) return made;
    }
    TESSERA_ASSIGN(Chosen exact, chosen(problem_));
    if (exact.made.engine || !exact.choice) return exact.made;
    TESSERA_ASSIGN(ConvSolution made, make(exact.choice));
    if (made.engine) return made;
    TESSERA_ASSIGN(exact, query(problem_)); // an earlier process's choice that does not do any more
    return exact.made;
  }

  struct Chosen {
    std::optional<ConvChoice> choice;
    ConvSolution made; // where this call queried the library
  };
  // The choice that this process or an earlier one made.
  Result<Chosen> chosen(const ConvProblem& problem) const {
    TESSERA_ASSIGN(auto choices, LibraryChoices::of(context_.context));
    if (const auto kept = choices->of_library(library_->name())->find(key(problem)))
      if (auto choice = parse_conv_choice(*kept)) return Chosen{std::move(*choice), {}};
    return query(problem);
  }

  Result<Chosen> query(const ConvProblem& problem) const {
    Chosen out;
    for (const ConvForm& form : forms()) {
      auto graph = this->graph(problem, form);
      if (!graph) {
        TESSERA_TRY(no_engine(graph.error()));
        continue;
      }
      TESSERA_ASSIGN(auto engine, find_engine(*library_, library_->handle, graph->operations, options(form)));
      if (!engine) continue;
      out.made = {form, std::move(engine)};
      break;
    }
    if (out.made.engine && !out.made.engine->choice) return out; // not to be kept
    if (out.made.engine) out.choice = ConvChoice{out.made.form, *out.made.engine->choice};
    TESSERA_ASSIGN(auto choices, LibraryChoices::of(context_.context));
    choices->of_library(library_->name())->put(key(problem), text_of(out.choice));
    return out;
  }

  // By the heuristics' choice for other sizes, or an earlier one for these; no engine where it does not do.
  Result<ConvSolution> make(const std::optional<ConvChoice>& choice) const {
    if (!choice) return ConvSolution();
    const auto allowed = forms();
    if (std::find(allowed.begin(), allowed.end(), choice->form) == allowed.end()) return ConvSolution();
    auto graph = this->graph(problem_, choice->form);
    std::shared_ptr<const ConvEngine> engine;
    if (!graph) {
      TESSERA_ASSIGN(engine, no_engine(graph.error()));
    } else {
      TESSERA_ASSIGN(
          engine, make_engine(*library_, library_->handle, graph->operations, options(choice->form), choice->engine));
    }
    return ConvSolution{choice->form, std::move(engine)};
  }

  [[nodiscard]] EngineOptions options(const ConvForm& form) const {
    return {operands_[0].dtype, form.compiled, call_.tf32};
  }
  [[nodiscard]] Result<OperationGraph> graph(const ConvProblem& problem, const ConvForm& form) const {
    ConvGraphOptions options;
    options.dtype = operands_[0].dtype;
    options.fused = form.fused && call_.fused ? &*call_.fused : nullptr;
    options.residual_is_result = form.residual_is_result;
    options.zero_bias = form.zero_bias;
    options.alignment = alignment();
    return make_conv_graph(*library_, problem, options);
  }

  const CudaPlanContext& context_;
  const ConvCall& call_;
  std::span<const Operand> operands_;
  std::shared_ptr<Cudnn> library_;
  ConvProblem problem_;
  const Operand *bias_ = nullptr, *residual_ = nullptr;
};

} // namespace

Result<OperationGraph> make_conv_graph(const Cudnn& library, const ConvProblem& problem,
                                       const ConvGraphOptions& options) {
  TESSERA_CHECK(cudnn_type(options.dtype).has_value(), "a convolution of a type that cuDNN has");
  return ConvGraph(library, problem, options).run();
}

Result<std::unique_ptr<CudaLibraryPlan>> plan_cuda_conv(const CudaPlanContext& context, const ConvCall& call,
                                                        std::span<const Operand> operands) {
  return ConvPlanner(context, call, operands).run();
}

} // namespace tessera::cuda
