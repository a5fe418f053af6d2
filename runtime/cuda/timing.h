// Timing of work on a GPU as its peers are timed: single calls between events, with the level-2 cache overwritten
// before each, on data that lies on the GPU.
#pragma once
#include "runtime/executor.h"
#include <functional>
#include <memory>

namespace tessera::cuda {

class Stopwatch {
public:
  // On the first GPU. Errors: those of Context::open, OutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Stopwatch>> create();
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Memory of the GPU that nobody holds.
  [[nodiscard]] Result<int64_t> free_bytes() const;
  // Memory of the GPU that lives as long as the stopwatch: with the tensor's contents, or for results.
  [[nodiscard]] Result<DeviceTensor> upload(const Tensor& tensor);
  [[nodiscard]] Result<DeviceTensor> allocate(DType dtype, const Dims& dims);
  [[nodiscard]] Result<Tensor> download(const DeviceTensor& tensor);
  // Every byte of it becomes 0xA5, which no result is.
  [[nodiscard]] Status poison(const DeviceTensor& tensor);
  // Milliseconds from the call's first work on the stream (a CUstream) to its last.
  [[nodiscard]] Result<double> time(const std::function<Status(void* stream)>& call);
  // Median of a copy on the device that reads and writes `bytes` in all, timed the same way.
  [[nodiscard]] Result<double> copy_ms(int64_t bytes);

private:
  Stopwatch();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace tessera::cuda
