#include "codegen/schedule/cost.h"
#include "codegen/target/select.h"

namespace tessera {

CostModel cost_model(const Target& t) {
  const Target& fitted = shipped_target("h200"); // what the defaults were fitted on
  const double cycle = fitted.clock_mhz / t.clock_mhz;
  const double latency = t.memory_latency_us / fitted.memory_latency_us;
  const double grid = t.grid_barrier_us / fitted.grid_barrier_us;
  const struct {
    double CostModel::*parameter;
    double factor;
  } factors[] = {
      {&CostModel::launch, t.kernel_us / fitted.kernel_us},
      {&CostModel::block, t.block_us / fitted.block_us},
      {&CostModel::bandwidth, t.memory_bytes_per_us / fitted.memory_bytes_per_us},
      {&CostModel::alone, t.core_memory_bytes_per_us / fitted.core_memory_bytes_per_us},
      {&CostModel::cache, t.l2_bytes_per_us / fitted.l2_bytes_per_us},
      {&CostModel::level2, static_cast<double>(t.l2_bytes) / static_cast<double>(fitted.l2_bytes)},
      {&CostModel::chain, latency},
      {&CostModel::loop, latency},
      {&CostModel::fold, cycle},
      {&CostModel::meet, t.barrier_us / fitted.barrier_us},
      {&CostModel::exchange, t.shared_latency_us / fitted.shared_latency_us},
      {&CostModel::team, grid},
      {&CostModel::member, grid},
      {&CostModel::exchange_team, t.l2_latency_us / fitted.l2_latency_us},
      {&CostModel::last, grid},
      {&CostModel::element, cycle},
      {&CostModel::clock, 1 / cycle},
      // Issue slots: more of them where a class of instruction has fewer results in a cycle.
      {&CostModel::simple, fitted.fma_per_cycle / t.fma_per_cycle},
      {&CostModel::elementary, fitted.fma_per_cycle / t.fma_per_cycle},
      {&CostModel::convert, fitted.conversion_per_cycle / t.conversion_per_cycle},
      {&CostModel::divide, fitted.integer_per_cycle / t.integer_per_cycle},
      {&CostModel::divide_constant, fitted.integer_per_cycle / t.integer_per_cycle},
      {&CostModel::access, fitted.load_store_per_cycle / t.load_store_per_cycle},
      {&CostModel::shuffle, fitted.shuffle_per_cycle / t.shuffle_per_cycle},
  };
  CostModel m;
  for (const auto& f : factors) m.*f.parameter *= f.factor;
  return m;
}

} // namespace tessera
