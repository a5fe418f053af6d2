#include "tests/cuda/library_device.h"
#include <random>

namespace tessera::cuda::test {

Dims dense(const Dims& shape) {
  Dims strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

Dims channels_last(const Dims& shape) {
  Dims strides(shape.size(), 1);
  int64_t step = shape[1];
  for (size_t d = shape.size(); d-- > 0;) {
    if (d == 1) continue;
    strides[d] = step;
    step *= shape[d];
  }
  return strides;
}

int64_t position(const Operand& view, const Dims& index) {
  int64_t p = view.offset;
  for (size_t d = 0; d < index.size(); ++d) p += index[d] * view.strides[d];
  return p;
}

void each(const Dims& dims, const std::function<void(const Dims&)>& f) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  Dims at(dims.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    f(at);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++at[d] < dims[d]) break;
      at[d] = 0;
    }
  }
}

double rounding_of(DType dtype) {
  switch (dtype) {
  case DType::F16: return 1.5e-3;
  case DType::BF16: return 1.2e-2;
  case DType::F32: return 3e-6;
  case DType::F64: return 1e-14;
  default: return 0;
  }
}

DeviceOperand filled(DType dtype, Dims shape, Dims strides, uint64_t seed, int64_t offset) {
  DeviceOperand out;
  int64_t last = offset;
  bool empty = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    last += std::max<int64_t>(shape[d] - 1, 0) * strides[d];
    empty = empty || shape[d] == 0;
  }
  out.host = Tensor::create(dtype, {empty ? 0 : last + 1}).value();
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < out.host.count(); ++i) {
    auto bits = static_cast<int64_t>(random() % 33) - 16;
    if (is_float(dtype))
      out.host.set_f64(i, static_cast<double>(bits) / 8);
    else
      out.host.set_i64(i, bits);
  }
  out.view.shape = std::move(shape);
  out.view.strides = std::move(strides);
  out.view.offset = offset;
  out.view.dtype = dtype;
  return out;
}

std::unique_ptr<Gpu> Gpu::open(std::string& why) {
  auto context = Context::open();
  if (!context) {
    why = context.error().str();
    return nullptr;
  }
  return of(*context, why);
}

std::unique_ptr<Gpu> Gpu::of(std::shared_ptr<Context> context, std::string& why) {
  auto gpu = std::make_unique<Gpu>();
  gpu->context_ = std::move(context);
  Context::Current current(*gpu->context_);
  auto stream = Stream::create(gpu->context_);
  if (!stream) {
    why = stream.error().str();
    return nullptr;
  }
  gpu->stream_ = std::move(*stream);
  return gpu;
}

Result<Tensor> Gpu::run(const CudaLibraryPlan& plan, std::vector<DeviceOperand*> operands, size_t result) {
  constexpr int64_t kFence = 256; // bytes before and behind every buffer
  constexpr unsigned char kPoison = 0xa5;
  Context::Current current(*context_);
  CUstream stream = stream_->handle();
  auto round = [](int64_t bytes) { return (bytes + kFence - 1) / kFence * kFence; };
  std::vector<int64_t> begin;
  int64_t total = kFence;
  for (const auto* o : operands) {
    begin.push_back(total);
    total += round(static_cast<int64_t>(o->host.bytes())) + kFence;
  }
  int64_t workspace = total;
  total += round(plan.workspace_bytes) + kFence;
  TESSERA_ASSIGN(CUdeviceptr base, context_->allocate(total, stream, "a test"));
  struct Release {
    Context& context;
    CUdeviceptr base;
    int64_t bytes;
    CUstream stream;
    ~Release() { context.release(base, bytes, stream); }
  } release{*context_, base, total, stream};
  TESSERA_CUDA_TRY(*context_, "a test", cuMemsetD8Async, base, kPoison, static_cast<size_t>(total), stream);
  std::vector<void*> pointers;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& t = operands[i]->host;
    if (t.bytes() > 0)
      TESSERA_CUDA_TRY(*context_, "a test", cuMemcpyHtoDAsync, base + static_cast<CUdeviceptr>(begin[i]), t.data(),
                       t.bytes(), stream);
    pointers.push_back(reinterpret_cast<void*>(base + static_cast<CUdeviceptr>(begin[i])));
  }
  auto* work = reinterpret_cast<void*>(base + static_cast<CUdeviceptr>(workspace));
  for (int round = 0; round < 2; ++round) TESSERA_TRY(plan.run(stream, pointers.data(), work, false));
  std::vector<unsigned char> all(static_cast<size_t>(total));
  TESSERA_CUDA_TRY(*context_, "a test", cuMemcpyDtoHAsync, all.data(), base, all.size(), stream);
  TESSERA_CUDA_TRY(*context_, "a test", cuStreamSynchronize, stream);
  for (size_t i = 0; i <= operands.size(); ++i) {
    int64_t behind = i < operands.size() ? begin[i] + static_cast<int64_t>(operands[i]->host.bytes())
                                         : workspace + plan.workspace_bytes;
    int64_t end = i + 1 < operands.size() ? begin[i + 1] : i < operands.size() ? workspace : total;
    for (int64_t b = behind; b < end; ++b)
      if (all[static_cast<size_t>(b)] != kPoison)
        return Diagnostic(ErrorCode::Internal, "byte " + std::to_string(b - behind) + " behind buffer " +
                                                   std::to_string(i) + " was written");
  }
  Tensor out = Tensor::create(operands[result]->host.dtype(), operands[result]->host.dims()).value();
  std::copy_n(reinterpret_cast<const std::byte*>(all.data()) + begin[result], out.bytes(), out.mutable_data());
  return out;
}

} // namespace tessera::cuda::test
