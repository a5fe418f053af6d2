#include "runtime/cuda/context.h"
#include "base/log.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

// Unused memory that the pool keeps rather than give it back to the system each time a stream is waited for.
constexpr uint64_t kKeep = uint64_t{256} << 20;
constexpr int64_t kAlignment = 256;

int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

} // namespace

Context::Current::Current(Context& context)
    : context_(context), result_(context.driver().cuCtxPushCurrent(context.handle())) {
  (void)context.driver().cuThreadExchangeStreamCaptureMode(&mode_);
}

Context::Current::~Current() {
  CUcontext popped = nullptr;
  (void)context_.driver().cuThreadExchangeStreamCaptureMode(&mode_);
  if (result_ == CUDA_SUCCESS) context_.driver().cuCtxPopCurrent(&popped);
}

Status Context::Current::status() const {
  if (result_ == CUDA_SUCCESS) return {};
  return context_.error(result_, "cuCtxPushCurrent");
}

Result<std::shared_ptr<Context>> Context::open(int ordinal) {
  TESSERA_ASSIGN(auto driver, Driver::load());
  static std::mutex mutex;
  // Never destroyed: at the process's end the driver may be gone before this would be.
  static auto* const open_ones = new std::map<int, std::shared_ptr<Context>>;
  std::lock_guard lock(mutex);
  auto& context = (*open_ones)[ordinal];
  if (!context) {
    TESSERA_ASSIGN(context, create(std::move(driver), ordinal));
  }
  return context;
}

Result<std::shared_ptr<Context>> Context::create(std::shared_ptr<const Driver> driver, int ordinal) {
  std::shared_ptr<Context> context(new Context);
  context->driver_ = std::move(driver);
  TESSERA_TRY(context->start(ordinal));
  return context;
}

Status Context::start(int ordinal) {
  int count = 0;
  TESSERA_CUDA_TRY(*this, "", cuDeviceGetCount, &count);
  if (count == 0)
    return Diagnostic(ErrorCode::UnsupportedFeature, "the NVIDIA driver found no GPU")
        .note("CUDA_VISIBLE_DEVICES may hide it; `nvidia-smi` lists what the system has");
  if (ordinal < 0 || ordinal >= count)
    return Diagnostic(ErrorCode::Usage, "there is no GPU " + std::to_string(ordinal) + ": this process sees " +
                                            std::to_string(count) + ", counted from 0");
  TESSERA_CUDA_TRY(*this, "", cuDeviceGet, &device_, ordinal);
  auto& p = properties_;
  p.ordinal = ordinal;
  char name[256] = {};
  TESSERA_CUDA_TRY(*this, "", cuDeviceGetName, name, static_cast<int>(sizeof name) - 1, device_);
  p.name = name;
  size_t total = 0;
  TESSERA_CUDA_TRY(*this, "", cuDeviceTotalMem, &total, device_);
  p.memory_bytes = static_cast<int64_t>(total);
  int l2 = 0, shared = 0, default_shared = 0, pools = 0, cooperative = 0;
  struct {
    CUdevice_attribute which;
    int* value;
  } const wanted[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &p.major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &p.minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &p.multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &p.max_threads_per_block},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &default_shared},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &pools},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, &cooperative},
  };
  for (const auto& [which, value] : wanted) TESSERA_CUDA_TRY(*this, "", cuDeviceGetAttribute, value, which, device_);
  p.l2_bytes = l2;
  p.shared_bytes_per_block = shared;
  p.default_shared_bytes_per_block = default_shared;
  p.memory_pools = pools != 0;
  p.cooperative_launch = cooperative != 0;
  // Newer drivers need not report these two.
  int clock_khz = 0, bus_bits = 0;
  if (driver_->cuDeviceGetAttribute(&clock_khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device_) == CUDA_SUCCESS &&
      driver_->cuDeviceGetAttribute(&bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device_) == CUDA_SUCCESS)
    p.memory_peak_bytes_per_us = 2.0 * clock_khz * bus_bits / 8 / 1e3; // two transfers in a cycle
  CUcontext primary = nullptr;
  TESSERA_CUDA_TRY(*this, "", cuDevicePrimaryCtxRetain, &primary, device_);
  handle_ = primary;
  if (p.memory_pools) {
    Current current(*this);
    TESSERA_TRY(current.status());
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device_;
    TESSERA_CUDA_TRY(*this, "", cuMemPoolCreate, &pool_, &props);
    uint64_t keep = kKeep;
    TESSERA_CUDA_TRY(*this, "", cuMemPoolSetAttribute, pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
  }
  TESSERA_LOGF(LogChannel::Memory, "GPU " + std::to_string(ordinal) + ": " + p.name + ", " + p.arch() + ", " +
                                       std::to_string(p.multiprocessors) + " multiprocessors, " +
                                       std::to_string(p.memory_bytes) + " bytes");
  return {};
}

Context::~Context() {
  if (!handle_) return;
  {
    Current current(*this);
    attachments_.clear();
    if (alone_done_) driver_->cuEventDestroy(alone_done_);
    if (pool_) driver_->cuMemPoolDestroy(pool_);
  }
  driver_->cuDevicePrimaryCtxRelease(device_);
}

Diagnostic Context::error(CUresult result, const char* function, const std::string& doing, std::source_location at) {
  auto d = driver_->error(result, function, doing, at);
  if (is_sticky(result)) {
    std::lock_guard lock(mutex_);
    if (!lost_) lost_ = std::make_unique<Diagnostic>(d);
    d.note("no GPU call of this process works after it: start the process again");
  }
  return d;
}

Status Context::usable() const {
  if (!process_.here())
    return Diagnostic(ErrorCode::Usage, "the GPU was opened by a parent of this process, and does not outlive a fork")
        .note("load the model after the fork in a process whose parent has not used the GPU: start it by 'spawn' or "
              "'forkserver'");
  std::lock_guard lock(mutex_);
  if (!lost_) return {};
  Diagnostic d(ErrorCode::DeviceError, "the GPU is lost to this process by an earlier error: " + lost_->message);
  return std::move(d).note("start the process again");
}

Diagnostic Context::out_of_memory(int64_t bytes, const std::string& what) {
  size_t free = 0, total = 0;
  std::string text = "cannot allocate " + std::to_string(bytes) + " bytes of GPU memory for " + what;
  if (driver_->cuMemGetInfo(&free, &total) == CUDA_SUCCESS)
    text += ": " + std::to_string(free) + " of " + std::to_string(total) + " bytes are free, " +
            std::to_string(held_bytes()) + " are held here";
  else
    text += ": " + std::to_string(held_bytes()) + " bytes are held here";
  return {ErrorCode::OutOfMemory, std::move(text)};
}

Result<CUdeviceptr> Context::allocate(int64_t bytes, CUstream stream, const std::string& what) {
  auto wanted = static_cast<size_t>(rounded(std::max<int64_t>(bytes, 1)));
  CUdeviceptr address = 0;
  auto attempt = [&] {
    return pool_ ? driver_->cuMemAllocFromPoolAsync(&address, wanted, pool_, stream)
                 : driver_->cuMemAlloc(&address, wanted);
  };
  auto result = attempt();
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    // Memory that was freed in stream order comes back when its stream has got there, unused memory by trimming.
    TESSERA_TRY(trim(stream));
    result = attempt();
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return out_of_memory(bytes, what);
  if (result != CUDA_SUCCESS)
    return error(result, pool_ ? "cuMemAllocFromPoolAsync" : "cuMemAlloc", "allocating memory for " + what);
  held_.fetch_add(static_cast<int64_t>(wanted), std::memory_order_relaxed);
  return address;
}

Status Context::trim(CUstream stream) {
  TESSERA_CUDA_TRY(*this, "giving memory back", cuStreamSynchronize, stream);
  if (pool_) TESSERA_CUDA_TRY(*this, "giving memory back", cuMemPoolTrimTo, pool_, 0);
  return {};
}

void Context::release(CUdeviceptr address, int64_t bytes, CUstream stream) {
  if (!address) return;
  held_.fetch_sub(rounded(std::max<int64_t>(bytes, 1)), std::memory_order_relaxed);
  // A context that is lost refuses this, too; its memory goes with the process.
  auto result = pool_ ? driver_->cuMemFreeAsync(address, stream) : driver_->cuMemFree(address);
  if (result != CUDA_SUCCESS)
    TESSERA_LOGF(LogChannel::Memory, error(result, pool_ ? "cuMemFreeAsync" : "cuMemFree", "freeing memory").str());
}

Result<CUdeviceptr> Context::allocate_unordered(int64_t bytes, const std::string& what) {
  const auto wanted = static_cast<size_t>(rounded(std::max<int64_t>(bytes, 1)));
  CUdeviceptr address = 0;
  auto result = driver_->cuMemAlloc(&address, wanted);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && pool_) {
    TESSERA_CUDA_TRY(*this, "giving memory back", cuMemPoolTrimTo, pool_, 0);
    result = driver_->cuMemAlloc(&address, wanted);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return out_of_memory(bytes, what);
  if (result != CUDA_SUCCESS) return error(result, "cuMemAlloc", "allocating memory for " + what);
  held_.fetch_add(static_cast<int64_t>(wanted), std::memory_order_relaxed);
  return address;
}

void Context::release_unordered(CUdeviceptr address, int64_t bytes) {
  held_.fetch_sub(rounded(std::max<int64_t>(bytes, 1)), std::memory_order_relaxed);
  if (const auto result = driver_->cuMemFree(address); result != CUDA_SUCCESS)
    TESSERA_LOGF(LogChannel::Memory, error(result, "cuMemFree", "freeing memory").str());
}

Result<std::optional<Context::Capture>> Context::capture_of(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  auto result = driver_->cuStreamIsCapturing(stream, &status);
  if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE) [[likely]]
    return std::optional<Capture>();
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    return Diagnostic(ErrorCode::Usage,
                      "the default stream cannot be used while a stream that waits for it is captured")
        .note("capture a stream that was made with CU_STREAM_NON_BLOCKING, or call on another stream");
  Capture capture;
  if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    cuuint64_t id = 0;
    result = driver_->capture_info(stream, &status, &id, &capture.graph, nullptr, nullptr);
    capture.id = id;
  }
  if (result != CUDA_SUCCESS) return error(result, "cuStreamGetCaptureInfo");
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return Diagnostic(ErrorCode::Usage, "the capture of the call's stream has failed before")
        .note("end it with cuStreamEndCapture");
  return std::optional<Capture>(capture);
}

Status Context::launch_alone(CUstream stream, const std::function<Status()>& launch) {
  std::lock_guard lock(alone_);
  unsigned long long id = 0;
  TESSERA_CUDA_TRY(*this, "", cuStreamGetId, stream, &id);
  if (!alone_done_)
    TESSERA_CUDA_TRY(*this, "", cuEventCreate, &alone_done_, CU_EVENT_DISABLE_TIMING);
  else if (id != alone_on_)
    TESSERA_CUDA_TRY(*this, "", cuStreamWaitEvent, stream, alone_done_, CU_EVENT_WAIT_DEFAULT);
  TESSERA_TRY(launch());
  TESSERA_CUDA_TRY(*this, "", cuEventRecord, alone_done_, stream);
  alone_on_ = id;
  return {};
}

Result<std::shared_ptr<void>> Context::attachment(const std::string& name, const MakeAttachment& make) {
  {
    std::lock_guard lock(mutex_);
    if (auto it = attachments_.find(name); it != attachments_.end()) return it->second;
  }
  Current current(*this);
  TESSERA_TRY(current.status());
  TESSERA_ASSIGN(auto made, make(*this));
  std::lock_guard lock(mutex_);
  return attachments_.emplace(name, std::move(made)).first->second; // another thread's, where it was faster
}

} // namespace tessera::cuda
