#include "runtime/cuda/driver.h"
#include "base/fork.h"
#include "base/log.h"
#include "runtime/cuda/dynamic_library.h"
#include <cstring>
#include <mutex>

namespace tessera::cuda {
namespace {

std::string place(const std::source_location& at) {
  std::string file = at.file_name();
  if (auto runtime = file.rfind("runtime/"); runtime != std::string::npos) file.erase(0, runtime);
  return file + ":" + std::to_string(at.line());
}

} // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

bool is_sticky(CUresult result) {
  switch (result) {
  case CUDA_ERROR_DEINITIALIZED:
  case CUDA_ERROR_ECC_UNCORRECTABLE:
  case CUDA_ERROR_NVLINK_UNCORRECTABLE:
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_CONTEXT_IS_DESTROYED:
  case CUDA_ERROR_ASSERT:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_LAUNCH_FAILED:
  case CUDA_ERROR_EXTERNAL_DEVICE:
  case CUDA_ERROR_CONTAINED:
  case CUDA_ERROR_TENSOR_MEMORY_LEAK: return true;
  default: return false;
  }
}

std::string Driver::text(CUresult result) const {
  const char *name = nullptr, *words = nullptr;
  std::string s = cuGetErrorName && cuGetErrorName(result, &name) == CUDA_SUCCESS && name
                      ? name
                      : "CUDA error " + std::to_string(static_cast<int>(result));
  if (cuGetErrorString && cuGetErrorString(result, &words) == CUDA_SUCCESS && words)
    s += " (" + std::string(words) + ")";
  return s;
}

Diagnostic Driver::error(CUresult result, const char* function, const std::string& doing,
                         std::source_location at) const {
  auto code = result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::OutOfMemory : ErrorCode::DeviceError;
  return Diagnostic(code, (doing.empty() ? "" : doing + ": ") + function + " failed with " + text(result))
      .note("at " + place(at));
}

Status initialize(Driver& driver) {
  if (auto result = driver.cuInit(0); result != CUDA_SUCCESS) {
    if (result == CUDA_ERROR_NO_DEVICE)
      return Diagnostic(ErrorCode::UnsupportedFeature, "the NVIDIA driver found no GPU")
          .note("CUDA_VISIBLE_DEVICES may hide it; `nvidia-smi` lists what the system has");
    return Diagnostic(ErrorCode::DeviceError, "the NVIDIA driver does not start: " + driver.text(result))
        .note("`nvidia-smi` shows whether the system's driver works");
  }
  if (driver.version == 0) TESSERA_CUDA_TRY(driver, "", cuDriverGetVersion, &driver.version);
  if (driver.version < Driver::kOldest)
    return Diagnostic(ErrorCode::UnsupportedFeature, "the NVIDIA driver is too old: it supports CUDA " +
                                                         version_text(driver.version) + "; CUDA " +
                                                         version_text(Driver::kOldest) + " or newer is needed");
  return {};
}

Result<Driver> Driver::open() {
  LibraryRequest request;
  request.what = "the NVIDIA driver (libcuda.so.1)";
  request.names = {"libcuda.so.1"};
  request.brings = "NVIDIA GPUs cannot be used";
  request.remedy = "it comes with the GPU's driver, not with the CUDA toolkit; a container gets it from its host "
                   "(docker run --gpus all)";
  TESSERA_ASSIGN(auto library, DynamicLibrary::open(request));
  auto too_old = [&](const std::string& what) {
    return Diagnostic(ErrorCode::UnsupportedFeature, "the NVIDIA driver is too old: " + what + "; CUDA " +
                                                         version_text(Driver::kOldest) + " or newer is needed")
        .note("the driver is '" + library->path() + "'");
  };
  Driver driver;
  TESSERA_TRY(library->bind(driver.cuDriverGetVersion, "cuDriverGetVersion"));
  if (driver.cuDriverGetVersion(&driver.version) != CUDA_SUCCESS)
    return Diagnostic(ErrorCode::DeviceError, "the NVIDIA driver does not report its version")
        .note("the driver is '" + library->path() + "'");
  if (driver.version < Driver::kOldest) return too_old("it supports CUDA " + version_text(driver.version));
  decltype(&::cuGetProcAddress) get = nullptr;
  TESSERA_TRY(library->bind(get, "cuGetProcAddress_v2"));
  const char* missing = nullptr;
  auto look_up = [&](auto& field, const char* function, int interface_version) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    auto result = get(function, &address, interface_version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    if (result != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS || !address) missing = function;
    field = reinterpret_cast<std::remove_reference_t<decltype(field)>>(address);
  };
#define TESSERA_CUDA_LOOK_UP(function, interface_version) look_up(driver.function, #function, interface_version);
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_CUDA_LOOK_UP)
#undef TESSERA_CUDA_LOOK_UP
  look_up(driver.capture_info, "cuStreamGetCaptureInfo", 11030);
  if (missing) return too_old("it supports CUDA " + version_text(driver.version) + " and has no function " + missing);
  return driver;
}

Result<std::shared_ptr<const Driver>> Driver::load() {
  static std::mutex mutex;
  static std::shared_ptr<const Driver> loaded;
  static std::unique_ptr<const Diagnostic> failed;
  static const OfProcess process;
  std::lock_guard lock(mutex);
  if (loaded && !process.here())
    return Diagnostic(ErrorCode::UnsupportedFeature,
                      "the NVIDIA driver was started by a parent of this process, and does "
                      "not outlive a fork")
        .note("start processes that use the GPU by 'spawn' or 'forkserver', or before the GPU is used");
  if (!loaded && !failed) {
    auto opened = open();
    Status started = opened.ok() ? initialize(*opened) : Status(opened.error());
    if (started.ok()) {
      loaded = std::make_shared<const Driver>(*opened);
      TESSERA_LOGF(LogChannel::Perf, "the NVIDIA driver supports CUDA " + version_text(loaded->version));
    } else {
      failed = std::make_unique<const Diagnostic>(started.error());
    }
  }
  if (failed) return *failed;
  return loaded;
}

} // namespace tessera::cuda
