// Pooling by cuDNN.
#include "runtime/cuda/cudnn_graph.h"

namespace tessera::cuda {
namespace {

class PoolPlan final : public CudaLibraryPlan {
public:
  explicit PoolPlan(std::shared_ptr<Cudnn> library) : library_(std::move(library)) {}
  ~PoolPlan() override {
    for (auto* t : {x, y})
      if (t) library_->cudnnDestroyTensorDescriptor(t);
    if (window) library_->cudnnDestroyPoolingDescriptor(window);
  }

  Status run(CUstream stream, void* const* pointers, void*, bool) const override {
    if (empty) return {};
    const float one = 1, zero = 0;
    std::lock_guard lock(library_->running);
    TESSERA_CUDNN_TRY(*library_, name, cudnnSetStream, library_->handle, stream);
    TESSERA_CUDNN_TRY(*library_, name, cudnnPoolingForward, library_->handle, window, &one, x,
                      static_cast<std::byte*>(pointers[x_buffer]) + x_offset, &zero, y,
                      static_cast<std::byte*>(pointers[y_buffer]) + y_offset);
    return {};
  }

  std::string name;
  bool empty = false;
  BufferId x_buffer = -1, y_buffer = -1;
  int64_t x_offset = 0, y_offset = 0; // bytes
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnPoolingDescriptor_t window = nullptr;

private:
  std::shared_ptr<Cudnn> library_;
};

std::optional<std::vector<int>> narrow(const std::vector<int64_t>& values) {
  std::vector<int> out;
  for (int64_t v : values) {
    if (v > INT32_MAX) return std::nullopt;
    out.push_back(static_cast<int>(v));
  }
  return out;
}

} // namespace

Result<std::unique_ptr<CudaLibraryPlan>> plan_cuda_pool(const CudaPlanContext& context, const PoolCall& call,
                                                        std::span<const Operand> operands) {
  TESSERA_ASSIGN(auto library, Cudnn::of(context.context));
  const Operand &x = operands[0], &y = operands[1];
  auto refuse = [&](const char* why) {
    return Diagnostic(ErrorCode::UnsupportedFeature, "cuDNN does not compute '" + context.name + "': " + why);
  };
  auto type = cudnn_type(x.dtype);
  if (!type || y.dtype != x.dtype) return refuse("it takes f16, bf16 and f32");
  TESSERA_ASSIGN(PoolProblem problem, describe_pool(call, x, y, context.name));
  auto plan = std::make_unique<PoolPlan>(library);
  plan->name = "running '" + context.name + "'";
  plan->empty = problem.empty;
  if (problem.empty) return std::unique_ptr<CudaLibraryPlan>(std::move(plan));
  int64_t bytes = info(x.dtype).bits / 8;
  plan->x_buffer = x.buffer;
  plan->y_buffer = y.buffer;
  plan->x_offset = x.offset * bytes;
  plan->y_offset = y.offset * bytes;
  std::string doing = "planning '" + context.name + "'";
  auto tensor = [&](cudnnTensorDescriptor_t& to, const ConvTensor& from) -> Status {
    auto dims = narrow(from.dims), strides = narrow(from.strides);
    if (!dims || !strides) return refuse("a tensor has more than 2^31 elements");
    TESSERA_CUDNN_TRY(*library, doing, cudnnCreateTensorDescriptor, &to);
    TESSERA_CUDNN_TRY(*library, doing, cudnnSetTensorNdDescriptor, to, *type, static_cast<int>(dims->size()),
                      dims->data(), strides->data());
    return {};
  };
  TESSERA_TRY(tensor(plan->x, problem.x));
  TESSERA_TRY(tensor(plan->y, problem.y));
  auto kernel = narrow(problem.kernel), pads = narrow(problem.pads), strides = narrow(problem.strides);
  if (!kernel || !pads || !strides) return refuse("its windows are larger than 2^31");
  cudnnPoolingMode_t mode = call.kind == PoolCall::Kind::Max       ? CUDNN_POOLING_MAX
                            : call.kind == PoolCall::Kind::Average ? CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
                                                                   : CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING;
  TESSERA_CUDNN_TRY(*library, doing, cudnnCreatePoolingDescriptor, &plan->window);
  TESSERA_CUDNN_TRY(*library, doing, cudnnSetPoolingNdDescriptor, plan->window, mode, CUDNN_PROPAGATE_NAN,
                    static_cast<int>(kernel->size()), kernel->data(), pads->data(), strides->data());
  return std::unique_ptr<CudaLibraryPlan>(std::move(plan));
}

} // namespace tessera::cuda
