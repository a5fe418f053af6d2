#include "runtime/cuda/cudnn.h"
#include "base/environment.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

constexpr size_t kOldest = 90000;

} // namespace

Result<std::shared_ptr<Cudnn>> Cudnn::open() {
  auto dnn = std::make_shared<Cudnn>();
  LibraryRequest request{"cuDNN",
                         {"libcudnn.so.9", "libcudnn.so"},
                         {"cudnn"},
                         "convolutions and pooling by NVIDIA's kernels",
                         "pip install nvidia-cudnn-cu13"};
  TESSERA_ASSIGN(dnn->library_, DynamicLibrary::open(request));
  TESSERA_TRY(dnn->library_->bind(dnn->cudnnGetVersion, "cudnnGetVersion"));
  dnn->version = dnn->cudnnGetVersion();
  if (dnn->version < kOldest)
    return Diagnostic(ErrorCode::UnsupportedFeature, "cuDNN of version number " + std::to_string(dnn->version) + " (" +
                                                         dnn->library_->path() +
                                                         ") is too old; 9.0 or later computes convolutions");
#define TESSERA_CUDNN_BIND(function) TESSERA_TRY(dnn->library_->bind(dnn->function, #function));
  TESSERA_CUDNN_FUNCTIONS(TESSERA_CUDNN_BIND)
#undef TESSERA_CUDNN_BIND
  dnn->compile_at_run_time = environment_flag("TESSERA_CUDNN_COMPILE", false);
  dnn->wait_for_plans = environment_flag("TESSERA_CUDNN_WAIT", false);
  return dnn;
}

Result<std::shared_ptr<Cudnn>> Cudnn::of(Context& context) {
  auto make = [](Context&) -> Result<std::shared_ptr<void>> {
    TESSERA_ASSIGN(auto dnn, open());
    if (auto status = dnn->cudnnCreate(&dnn->handle); status != CUDNN_STATUS_SUCCESS)
      return dnn->error(status, "cudnnCreate", "starting " + dnn->library_->path());
    return std::shared_ptr<void>(std::move(dnn));
  };
  TESSERA_ASSIGN(auto attached, context.attachment(kAttachment, make));
  return std::static_pointer_cast<Cudnn>(attached);
}

Cudnn::~Cudnn() {
  solutions_.clear();
  if (zeros_) free_zeros_(zeros_); // a context lets go of what is kept with it while it is current
  if (handle) cudnnDestroy(handle);
}

Result<ConvSolution> Cudnn::solution(const std::string& key, const std::function<Result<ConvSolution>()>& solve) {
  {
    std::lock_guard lock(mutex_);
    if (auto it = solutions_.find(key); it != solutions_.end()) {
      it->second.used = ++requests_;
      return it->second.solution;
    }
  }
  TESSERA_ASSIGN(auto solved, solve());
  std::lock_guard lock(mutex_);
  if (solutions_.size() >= kMaxSolutions)
    solutions_.erase(std::min_element(solutions_.begin(), solutions_.end(),
                                      [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  return solutions_.try_emplace(key, Kept{std::move(solved), ++requests_}).first->second.solution;
}

size_t Cudnn::solutions() const {
  std::lock_guard lock(mutex_);
  return solutions_.size();
}

std::string Cudnn::name() const {
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Result<void*> Cudnn::zeros(Context& context, int64_t bytes) {
  if (bytes > kZeros) return static_cast<void*>(nullptr);
  std::lock_guard lock(mutex_);
  if (!zeros_) {
    constexpr const char* kDoing = "making a bias of zeros";
    CUdeviceptr made = 0;
    TESSERA_CUDA_TRY(context, kDoing, cuMemAlloc, &made, kZeros);
    free_zeros_ = context.driver().cuMemFree;
    zeros_ = made;
    TESSERA_CUDA_TRY(context, kDoing, cuMemsetD8Async, zeros_, 0, kZeros, nullptr);
    TESSERA_CUDA_TRY(context, kDoing, cuStreamSynchronize, nullptr);
  }
  return reinterpret_cast<void*>(zeros_);
}

Diagnostic Cudnn::error(cudnnStatus_t status, const char* function, const std::string& doing) const {
  // Statuses come in families: 2xxx bad parameters, 3xxx not supported, 4xxx and 5xxx failures.
  constexpr int kFamily = 1000, kUnsupported = 3;
  bool memory = status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
                status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  auto code = static_cast<int>(status) / kFamily == kUnsupported ? ErrorCode::UnsupportedFeature
              : memory                                           ? ErrorCode::OutOfMemory
                                                                 : ErrorCode::DeviceError;
  return Diagnostic(code, (doing.empty() ? std::string() : doing + ": ") + function + " failed with " +
                              cudnnGetErrorString(status));
}

Result<Descriptor> Descriptor::create(const Cudnn& library, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t handle = nullptr;
  TESSERA_CUDNN_TRY(library, "", cudnnBackendCreateDescriptor, type, &handle);
  return Descriptor(library, handle);
}

Descriptor::~Descriptor() {
  if (handle_) library_->cudnnBackendDestroyDescriptor(handle_);
}

Status Descriptor::set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                           const void* values) {
  TESSERA_CUDNN_TRY(*library_, "attribute " + std::to_string(static_cast<int>(name)), cudnnBackendSetAttribute, handle_,
                    name, type, count, values);
  return {};
}

Status Descriptor::finalize() {
  TESSERA_CUDNN_TRY(*library_, "", cudnnBackendFinalize, handle_);
  return {};
}

} // namespace tessera::cuda
