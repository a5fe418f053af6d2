// Kernels made from texts and launched on the host, without a cache folder.
#pragma once
#include "codegen/kernels/tile_kernel.h"
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

namespace tessera::kernel_test {

inline TileKernelOptions on_host(int threads = 3) {
  TileKernelOptions options;
  options.file = "test.tile";
  options.compile.cache = false;
  options.pool = ThreadPool::create(threads);
  return options;
}
inline std::unique_ptr<TileKernel> make(const std::string& text, TileKernelOptions options = on_host()) {
  auto made = TileKernel::create(text, std::move(options));
  if (!made.ok()) {
    ADD_FAILURE() << made.error().str() << text;
    std::abort();
  }
  return std::move(*made);
}
template <class... Values>
Status launch(TileKernel& kernel, const Grid& grid, const Values&... values) {
  const std::array<KernelArgument, sizeof...(Values)> arguments{KernelArgument(values)...};
  return kernel.launch(grid, arguments);
}
// The message of an error; empty where there is none.
inline std::string message(const Status& status) { return status.ok() ? "" : status.error().message; }

inline std::vector<float> ramp(size_t count, float step = 1) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = step * static_cast<float>(i % 251) - 30;
  return out;
}
// ||a - b|| / ||b||, or ||a - b|| where b is zero.
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < b.size(); ++i) {
    error += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    norm += double{b[i]} * double{b[i]};
  }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

} // namespace tessera::kernel_test
