// Timing of work on a GPU as its peers are timed: single calls between events, with the level-2 cache overwritten
// before each, on data that lies on the GPU.
//
// Overwriting leaves lines of what was read last in the cache (11 to 12 of 50 MB on an H200, the more so of loads
// without a hint), so kernels that are timed on the same memory again and again look faster than they are, some more
// than others. Who compares kernels gives calls several sets of memory in turn, sets() of them.
#pragma once
#include "runtime/executor.h"
#include <functional>
#include <memory>

namespace tessera::cuda {

class Context;

// How many sets of memory calls that move `moved` bytes each take turns in, so that at least twice the cache goes by
// between two calls on the same set: 2 to 16, but no more than take `limit` bytes together, and at least one. With 16
// sets of little memory less goes by; what of it outlives 16 times overwriting stays in the cache. (tools/benchmark
// counts the same way.)
[[nodiscard]] int64_t memory_sets(int64_t moved, int64_t cache, int64_t limit);

class Stopwatch {
public:
  // On the first GPU, or on another one. Errors: those of Context::open, OutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Stopwatch>> create(std::shared_ptr<Context> context = nullptr);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Memory of the GPU that nobody holds.
  [[nodiscard]] Result<int64_t> free_bytes() const;
  // memory_sets() of this GPU's cache.
  [[nodiscard]] int64_t sets(int64_t moved, int64_t limit) const;
  // Memory of the GPU that lives as long as the stopwatch: with the tensor's contents, or for results.
  [[nodiscard]] Result<DeviceTensor> upload(const Tensor& tensor);
  [[nodiscard]] Result<DeviceTensor> upload(const DeviceTensor& tensor); // from the GPU itself
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
