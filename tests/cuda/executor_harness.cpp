#include "executor_harness.h"

namespace tessera::test {

OnGpu::OnGpu() {
  // y[i] = 2 x[i] + n for i in [0, n), 64 elements a block.
  gpu.kernel("twice", 4, [this](const FakeGpu::Launch& l) {
    auto n = static_cast<int64_t>(l.args[2]);
    const auto* x = gpu.at<float>(l.args[0], n);
    auto* y = gpu.at<float>(l.args[1], n);
    for (int64_t i = 0; i < n && i < l.grid * 64; ++i) y[i] = 2 * x[i] + static_cast<float>(n);
    return CUDA_SUCCESS;
  });
  // The same, and a violation (site 1) for a negative element.
  gpu.kernel("checked", 4, [this](const FakeGpu::Launch& l) {
    auto n = static_cast<int64_t>(l.args[2]);
    const auto* x = gpu.at<float>(l.args[0], n);
    auto* y = gpu.at<float>(l.args[1], n);
    for (int64_t i = 0; i < n; ++i) {
      y[i] = 2 * x[i] + static_cast<float>(n);
      if (x[i] < 0) gpu.at<IndexReport>(l.args[3], 1)->add(1, i, static_cast<int64_t>(x[i]));
    }
    return CUDA_SUCCESS;
  });
  gpu.kernel("broken", 4, [](const FakeGpu::Launch&) { return CUDA_ERROR_ILLEGAL_ADDRESS; });
  options.pool = ThreadPool::create(2);
  options.poison = true;
}

} // namespace tessera::test
