// Parts that kernels built directly in the tile IR share: sizes of blocks, and a time that they take at least.
#include "codegen/schedule/own_kernels.h"
#include "codegen/target/derived.h"
#include <algorithm>

namespace tessera {

int block_warps(int64_t threads) {
  constexpr int64_t kWarp = 32;
  return static_cast<int>(std::max<int64_t>(1, threads / kWarp));
}

int power_at_most(const SymExpr& size, int most) {
  const auto n = size.as_const();
  int p = 1;
  while (p < most && (!n || p < *n)) p *= 2;
  return p;
}

BlockSize block_size(const Target& device, int element_bytes) {
  BlockSize size;
  size.threads = static_cast<int>(device.block_threads / std::max(1, device.schedulers));
  size.warps = block_warps(size.threads);
  size.elements = static_cast<int>(std::max<int64_t>(1, device.access_bytes / element_bytes));
  return size;
}

PredictedTime time_of_bytes(const ShapeEnv& env, const Target& device, const SymExpr& bytes) {
  PredictedTime time;
  const auto known = env.simplify(bytes).as_const();
  if (!known) return time;
  const double launch = lone_launch_us(device);
  const double rate = *known <= device.l2_bytes ? device.l2_bytes_per_us : device.memory_bytes_per_us;
  const double memory = static_cast<double>(*known) / rate;
  time.us = launch + memory;
  time.terms = {{"launch", launch}, {"memory", memory}};
  return time;
}

} // namespace tessera
