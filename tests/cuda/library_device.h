// Helpers for tests of library calls on a GPU: operands that are views of tensors, uploaded, and results that come
// back. They skip, saying why, where there is no GPU.
#pragma once
#include "base/tensor.h"
#include "runtime/cuda/library.h"
#include "runtime/cuda/stream.h"
#include <gtest/gtest.h>

namespace tessera::cuda::test {

// A tensor in device memory with what the call sees of it.
struct DeviceOperand {
  Tensor host;
  Operand view;
};
// A view of a tensor that is exactly as long as the view reaches, filled by `seed`: multiples of 1/8 in [-2, 2].
[[nodiscard]] DeviceOperand filled(DType dtype, Dims shape, Dims strides, uint64_t seed, int64_t offset = 0);
[[nodiscard]] Dims dense(const Dims& shape);         // strides, row-major
[[nodiscard]] Dims channels_last(const Dims& shape); // strides of [N, C, spatial...] with C innermost
[[nodiscard]] int64_t position(const Operand& view, const Dims& index);
// Calls f for every index.
void each(const Dims& dims, const std::function<void(const Dims&)>& f);
[[nodiscard]] double rounding_of(DType dtype); // largest relative error of a correct result, sums included

class Gpu {
public:
  // Null where there is none; `why` says so.
  [[nodiscard]] static std::unique_ptr<Gpu> open(std::string& why);
  [[nodiscard]] static std::unique_ptr<Gpu> of(std::shared_ptr<Context> context, std::string& why);
  [[nodiscard]] Context& context() { return *context_; }
  // Uploads the operands (each a buffer of its own, numbered in order), runs the plan twice, and brings back `result`.
  // Memory around every buffer is checked to be untouched.
  [[nodiscard]] Result<Tensor> run(const CudaLibraryPlan& plan, std::vector<DeviceOperand*> operands, size_t result);

private:
  std::shared_ptr<Context> context_;
  std::unique_ptr<Stream> stream_;
};

} // namespace tessera::cuda::test

#define TESSERA_GPU_OR_SKIP(gpu)                                                                                       \
  std::string gpu##_why;                                                                                               \
  auto gpu = tessera::cuda::test::Gpu::open(gpu##_why);                                                                \
  if (!gpu) GTEST_SKIP() << gpu##_why
