#include "runtime/cuda/timing.h"
#include "runtime/cuda/memory.h"
#include <algorithm>

namespace tessera::cuda {

int64_t memory_sets(int64_t moved, int64_t cache, int64_t limit) {
  constexpr int64_t kMax = 16;
  moved = std::max<int64_t>(moved, 1);
  const int64_t wanted = std::min(kMax, (2 * cache + moved - 1) / moved + 1);
  return std::max<int64_t>(1, std::min(wanted, limit / moved));
}

struct Stopwatch::Impl {
  std::shared_ptr<Context> context;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> before, after;
  std::unique_ptr<Staging> staging;
  struct Held {
    CUdeviceptr address;
    int64_t bytes;
  };
  std::vector<Held> held;
  Held flush{};

  Result<CUdeviceptr> memory(int64_t bytes, const std::string& what) {
    Context::Current current(*context);
    TESSERA_TRY(current.status());
    TESSERA_ASSIGN(CUdeviceptr address, context->allocate(std::max<int64_t>(bytes, 1), stream->handle(), what));
    held.push_back({address, std::max<int64_t>(bytes, 1)});
    return address;
  }
};

Stopwatch::Stopwatch() : impl_(std::make_unique<Impl>()) {}

Stopwatch::~Stopwatch() {
  if (!impl_->stream) return;
  Context::Current current(*impl_->context);
  for (const auto& h : impl_->held) impl_->context->release(h.address, h.bytes, impl_->stream->handle());
  impl_->staging.reset();
}

Result<std::unique_ptr<Stopwatch>> Stopwatch::create(std::shared_ptr<Context> context) {
  std::unique_ptr<Stopwatch> out(new Stopwatch());
  Impl& impl = *out->impl_;
  impl.context = std::move(context);
  if (!impl.context) {
    TESSERA_ASSIGN(impl.context, Context::open());
  }
  Context::Current current(*impl.context);
  TESSERA_TRY(current.status());
  TESSERA_ASSIGN(impl.stream, Stream::create(impl.context));
  TESSERA_ASSIGN(impl.before, Event::create(impl.context, true));
  TESSERA_ASSIGN(impl.after, Event::create(impl.context, true));
  impl.staging = std::make_unique<Staging>(impl.context);
  // Several times the level-2 cache, as large as what Triton's benchmark overwrites.
  impl.flush.bytes = std::max<int64_t>(int64_t{256} << 20, 4 * impl.context->properties().l2_bytes);
  TESSERA_ASSIGN(impl.flush.address, impl.memory(impl.flush.bytes, "memory to overwrite the cache with"));
  return out;
}

Result<int64_t> Stopwatch::free_bytes() const {
  Context::Current current(*impl_->context);
  TESSERA_TRY(current.status());
  size_t free = 0, total = 0;
  TESSERA_CUDA_TRY(*impl_->context, "", cuMemGetInfo, &free, &total);
  return static_cast<int64_t>(free);
}

int64_t Stopwatch::sets(int64_t moved, int64_t limit) const {
  return memory_sets(moved, impl_->context->properties().l2_bytes, limit);
}

Result<DeviceTensor> Stopwatch::allocate(DType dtype, const Dims& dims) {
  TESSERA_ASSIGN(int64_t count, element_count(dims));
  int64_t bytes = byte_size(dtype, count);
  TESSERA_ASSIGN(CUdeviceptr address, impl_->memory(bytes, "a tensor of a benchmark"));
  return DeviceTensor{dtype, dims, reinterpret_cast<void*>(address)};
}

Result<DeviceTensor> Stopwatch::upload(const Tensor& tensor) {
  TESSERA_ASSIGN(DeviceTensor out, allocate(tensor.dtype(), tensor.dims()));
  Context::Current current(*impl_->context);
  TESSERA_TRY(current.status());
  TESSERA_TRY(impl_->staging->upload(reinterpret_cast<CUdeviceptr>(out.data), tensor.data(), tensor.bytes(),
                                     impl_->stream->handle(), "copying an input to the GPU"));
  TESSERA_TRY(impl_->staging->wait());
  return out;
}

Result<DeviceTensor> Stopwatch::upload(const DeviceTensor& tensor) {
  TESSERA_ASSIGN(DeviceTensor out, allocate(tensor.dtype, tensor.dims));
  TESSERA_ASSIGN(int64_t count, element_count(tensor.dims));
  Context::Current current(*impl_->context);
  TESSERA_TRY(current.status());
  if (count == 0) return out;
  CUresult r = impl_->context->driver().cuMemcpyDtoDAsync(
      reinterpret_cast<CUdeviceptr>(out.data), reinterpret_cast<CUdeviceptr>(tensor.data),
      static_cast<size_t>(byte_size(tensor.dtype, count)), impl_->stream->handle());
  if (r != CUDA_SUCCESS) return impl_->context->error(r, "cuMemcpyDtoDAsync");
  return out;
}

Result<Tensor> Stopwatch::download(const DeviceTensor& tensor) {
  TESSERA_ASSIGN(Tensor out, Tensor::create(tensor.dtype, tensor.dims));
  Context::Current current(*impl_->context);
  TESSERA_TRY(current.status());
  TESSERA_TRY(impl_->staging->download(out.mutable_data(), reinterpret_cast<CUdeviceptr>(tensor.data), out.bytes(),
                                       impl_->stream->handle(), "copying a result from the GPU"));
  TESSERA_TRY(impl_->staging->wait());
  return out;
}

Status Stopwatch::poison(const DeviceTensor& tensor) {
  TESSERA_ASSIGN(int64_t count, element_count(tensor.dims));
  Context::Current current(*impl_->context);
  TESSERA_TRY(current.status());
  if (count == 0) return {};
  CUresult r = impl_->context->driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(tensor.data), 0xA5,
                                                        static_cast<size_t>(byte_size(tensor.dtype, count)),
                                                        impl_->stream->handle());
  return r == CUDA_SUCCESS ? Status() : impl_->context->error(r, "cuMemsetD8Async");
}

Result<double> Stopwatch::time(const std::function<Status(void*)>& call) {
  Context::Current current(*impl_->context);
  TESSERA_TRY(current.status());
  CUstream stream = impl_->stream->handle();
  const Driver& driver = impl_->context->driver();
  if (CUresult r = driver.cuMemsetD8Async(impl_->flush.address, 0, static_cast<size_t>(impl_->flush.bytes), stream))
    return impl_->context->error(r, "cuMemsetD8Async");
  TESSERA_TRY(impl_->before->record(stream));
  TESSERA_TRY(call(stream));
  TESSERA_TRY(impl_->after->record(stream));
  TESSERA_TRY(impl_->after->wait());
  return impl_->after->ms_since(*impl_->before);
}

Result<double> Stopwatch::copy_ms(int64_t bytes) {
  const int64_t half = std::max<int64_t>(bytes / 2, 1);
  TESSERA_ASSIGN(CUdeviceptr from, impl_->memory(half, "the source of a copy"));
  TESSERA_ASSIGN(CUdeviceptr to, impl_->memory(half, "the target of a copy"));
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    TESSERA_ASSIGN(double ms, time([&](void* stream) -> Status {
                     CUresult r = impl_->context->driver().cuMemcpyDtoDAsync(to, from, static_cast<size_t>(half),
                                                                             static_cast<CUstream>(stream));
                     return r == CUDA_SUCCESS ? Status() : impl_->context->error(r, "cuMemcpyDtoDAsync");
                   }));
    if (i >= 4) times.push_back(ms);
  }
  Context::Current current(*impl_->context);
  TESSERA_TRY(current.status());
  for (int i = 0; i < 2; ++i) {
    impl_->context->release(impl_->held.back().address, impl_->held.back().bytes, impl_->stream->handle());
    impl_->held.pop_back();
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

} // namespace tessera::cuda
