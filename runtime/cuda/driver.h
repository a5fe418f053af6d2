// The CUDA driver as a table of functions, filled from libcuda.so.1 when a GPU is first wanted. A table that a test
// fills itself stands for a GPU.
#pragma once
#include "base/result.h"
#include <cuda.h>
#include <memory>
#include <source_location>

namespace tessera::cuda {

// Function, and the version of its interface that is requested from the driver: the one that cuda.h declares.
#define TESSERA_CUDA_DRIVER_FUNCTIONS(X)                                                                               \
  X(cuInit, 2000)                                                                                                      \
  X(cuDriverGetVersion, 2020)                                                                                          \
  X(cuGetErrorName, 6000)                                                                                              \
  X(cuGetErrorString, 6000)                                                                                            \
  X(cuDeviceGetCount, 2000)                                                                                            \
  X(cuDeviceGet, 2000)                                                                                                 \
  X(cuDeviceGetName, 2000)                                                                                             \
  X(cuDeviceGetAttribute, 2000)                                                                                        \
  X(cuDeviceTotalMem, 3020)                                                                                            \
  X(cuDevicePrimaryCtxRetain, 7000)                                                                                    \
  X(cuDevicePrimaryCtxRelease, 11000)                                                                                  \
  X(cuCtxPushCurrent, 4000)                                                                                            \
  X(cuCtxPopCurrent, 4000)                                                                                             \
  X(cuMemGetInfo, 3020)                                                                                                \
  X(cuMemAlloc, 3020)                                                                                                  \
  X(cuMemFree, 3020)                                                                                                   \
  X(cuMemHostAlloc, 2020)                                                                                              \
  X(cuMemHostGetDevicePointer, 3020)                                                                                   \
  X(cuMemFreeHost, 2000)                                                                                               \
  X(cuMemPoolCreate, 11020)                                                                                            \
  X(cuMemPoolDestroy, 11020)                                                                                           \
  X(cuMemPoolSetAttribute, 11020)                                                                                      \
  X(cuMemPoolTrimTo, 11020)                                                                                            \
  X(cuMemAllocFromPoolAsync, 11020)                                                                                    \
  X(cuMemFreeAsync, 11020)                                                                                             \
  X(cuMemcpyHtoDAsync, 3020)                                                                                           \
  X(cuMemcpyDtoHAsync, 3020)                                                                                           \
  X(cuMemcpyDtoDAsync, 3020)                                                                                           \
  X(cuMemsetD8Async, 3020)                                                                                             \
  X(cuStreamCreateWithPriority, 5050)                                                                                  \
  X(cuStreamDestroy, 4000)                                                                                             \
  X(cuStreamSynchronize, 2000)                                                                                         \
  X(cuStreamGetId, 12000)                                                                                              \
  X(cuStreamWaitEvent, 3020)                                                                                           \
  X(cuLaunchHostFunc, 10000)                                                                                           \
  X(cuStreamIsCapturing, 10000)                                                                                        \
  X(cuStreamBeginCapture, 10010)                                                                                       \
  X(cuThreadExchangeStreamCaptureMode, 10010)                                                                          \
  X(cuStreamEndCapture, 10000)                                                                                         \
  X(cuGraphInstantiateWithFlags, 11040)                                                                                \
  X(cuGraphExecUpdate, 12000)                                                                                          \
  X(cuGraphLaunch, 10000)                                                                                              \
  X(cuGraphGetNodes, 10000)                                                                                            \
  X(cuGraphNodeGetType, 10000)                                                                                         \
  X(cuGraphMemcpyNodeGetParams, 10000)                                                                                 \
  X(cuGraphMemsetNodeGetParams, 10000)                                                                                 \
  X(cuGraphChildGraphNodeGetGraph, 10000)                                                                              \
  X(cuPointerGetAttribute, 4000)                                                                                       \
  X(cuGraphDestroy, 10000)                                                                                             \
  X(cuUserObjectCreate, 11030)                                                                                         \
  X(cuUserObjectRelease, 11030)                                                                                        \
  X(cuGraphRetainUserObject, 11030)                                                                                    \
  X(cuGraphExecDestroy, 10000)                                                                                         \
  X(cuEventCreate, 2000)                                                                                               \
  X(cuEventDestroy, 4000)                                                                                              \
  X(cuEventRecord, 2000)                                                                                               \
  X(cuEventSynchronize, 2000)                                                                                          \
  X(cuEventElapsedTime, 2000)                                                                                          \
  X(cuModuleLoadDataEx, 2010)                                                                                          \
  X(cuModuleUnload, 2000)                                                                                              \
  X(cuModuleGetFunction, 2000)                                                                                         \
  X(cuFuncSetAttribute, 9000)                                                                                          \
  X(cuFuncGetAttribute, 2020)                                                                                          \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050)                                                                 \
  X(cuTensorMapEncodeTiled, 12000)                                                                                     \
  X(cuLaunchCooperativeKernel, 9000)                                                                                   \
  X(cuLaunchKernelEx, 11060)                                                                                           \
  X(cuLaunchKernel, 4000)

struct Driver {
  static constexpr int kOldest = 12000; // CUDA 12.0, which driver 525 brought

#define TESSERA_CUDA_FIELD(function, interface_version) decltype(&::function) function = nullptr;
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_CUDA_FIELD)
#undef TESSERA_CUDA_FIELD
  // cuStreamGetCaptureInfo_v2, which every driver has; headers declare it under this name or not at all.
  CUresult (*capture_info)(CUstream, CUstreamCaptureStatus*, cuuint64_t* id, CUgraph*, const CUgraphNode**,
                           size_t*) = nullptr;
  int version = 0; // the newest CUDA that it supports: 13000 is 13.0

  // The driver of this machine, opened and initialised once per process; a failure is remembered, too. Errors, reported
  // apart: UnsupportedFeature where there is no driver, no GPU, or a driver older than kOldest (both versions are
  // named); DeviceError where it does not start, with its own words.
  [[nodiscard]] static Result<std::shared_ptr<const Driver>> load();
  // The table of the driver that is found now, not initialised and not kept. Errors: UnsupportedFeature as for load().
  [[nodiscard]] static Result<Driver> open();

  // A failed call as a Diagnostic: OutOfMemory or DeviceError with the error's name and text, the function, `doing`
  // ("uploading constant 'w'"; may be empty) and the place in our code.
  [[nodiscard]] Diagnostic error(CUresult result, const char* function, const std::string& doing = {},
                                 std::source_location at = std::source_location::current()) const;
  [[nodiscard]] const Driver& driver() const { return *this; }
  // "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
  [[nodiscard]] std::string text(CUresult result) const;
};

// Calls cuInit and fills Driver::version. Errors as for load(). For tables that were filled by hand.
[[nodiscard]] Status initialize(Driver& driver);
// "13.0"
[[nodiscard]] std::string version_text(int version);
// Errors that a context does not survive: every later call fails with them.
[[nodiscard]] bool is_sticky(CUresult result);

} // namespace tessera::cuda

// TESSERA_CUDA_TRY(source, doing, function, args...): returns a Diagnostic from the enclosing function where the call
// fails. `source` is a Context or a Driver.
#define TESSERA_CUDA_TRY(source, doing, function, ...)                                                                 \
  do {                                                                                                                 \
    if (CUresult tessera_c_ = (source).driver().function(__VA_ARGS__); tessera_c_ != CUDA_SUCCESS) [[unlikely]]        \
      return (source).error(tessera_c_, #function, doing);                                                             \
  } while (0)
