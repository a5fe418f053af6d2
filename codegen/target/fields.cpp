// The table of a target's figures: names in files, units, meanings, bounds.
#include "codegen/target/target.h"
#include <cmath>

namespace tessera {
namespace {

using F = TargetField;

// Bounds are wide: they catch a wrong unit, not an unusual device.
constexpr double kKB = 1 << 10, kMB = 1 << 20, kGB = 1 << 30;

constexpr TargetField kFields[] = {
    {"multiprocessors", "count", "multiprocessors", &Target::multiprocessors, 1, 4096, F::Cuda},
    {"schedulers", "count", "warp schedulers of a multiprocessor", &Target::schedulers, 1, 16, F::Cuda},
    {"registers", "count", "32-bit registers of a multiprocessor", &Target::registers, 1024, kMB, F::Cuda},
    {"thread_registers", "count", "32-bit registers that one thread may use", &Target::thread_registers, 16, 4096,
     F::Cuda},
    {"resident_threads", "count", "threads resident on a multiprocessor", &Target::resident_threads, 32, 65536,
     F::Cuda},
    {"resident_blocks", "count", "blocks resident on a multiprocessor", &Target::resident_blocks, 1, 1024, F::Cuda},
    {"block_threads", "count", "threads that one block may have", &Target::block_threads, 32, 65536, F::Cuda},
    {"shared_bytes", "bytes", "shared memory that one block may use", &Target::shared_bytes, kKB, 16 * kMB, F::Cuda},
    {"multiprocessor_shared_bytes", "bytes", "shared memory of a multiprocessor", &Target::multiprocessor_shared_bytes,
     kKB, 16 * kMB, F::Cuda},
    {"reserved_shared_bytes", "bytes", "shared memory that the system takes for each resident block",
     &Target::reserved_shared_bytes, 0, 64 * kKB, F::Cuda},
    {"cores", "count", "cores, each of which runs one program at a time", &Target::cores, 1, 65536, F::Cpu},
    {"vector_bytes", "bytes", "widest vector register", &Target::vector_bytes, 8, 4096, F::Cpu},
    {"unroll", "count", "vectors in one step that hide the latency of arithmetic", &Target::unroll, 1, 64, F::Cpu},
    {"l1_bytes", "bytes", "level-1 cache of a multiprocessor or core", &Target::l1_bytes, kKB, 64 * kMB, F::Both},
    {"l2_bytes", "bytes", "level-2 cache of a GPU, or of one core of a host", &Target::l2_bytes, 16 * kKB, 16 * kGB,
     F::Both},
    {"l3_bytes", "bytes", "level-3 cache of a host", &Target::l3_bytes, 0, 64 * kGB, F::Cpu},
    {"instruction_cache_bytes", "bytes", "instruction cache of a multiprocessor, its largest level",
     &Target::instruction_cache_bytes, kKB, 64 * kMB, F::Cuda},
    {"line_bytes", "bytes", "a cache line", &Target::line_bytes, 16, 4096, F::Both},
    {"sector_bytes", "bytes", "what memory moves at least", &Target::sector_bytes, 16, 4096, F::Cuda},
    {"access_bytes", "bytes", "widest load or store of one thread", &Target::access_bytes, 4, 256, F::Cuda},
    {"memory_peak_bytes_per_us", "bytes/us", "memory clock times bus width", &Target::memory_peak_bytes_per_us, 1e4,
     1e9, F::Cuda},
    {"memory_bytes_per_us", "bytes/us", "memory, of the whole device, reads and writes together",
     &Target::memory_bytes_per_us, 1e3, 1e9, F::Both},
    {"core_memory_bytes_per_us", "bytes/us", "memory, of one multiprocessor or core that works alone",
     &Target::core_memory_bytes_per_us, 1e3, 1e7, F::Both},
    {"l1_bytes_per_us", "bytes/us", "level-1 cache of one core", &Target::l1_bytes_per_us, 1e3, 1e8, F::Cpu},
    {"l2_bytes_per_us", "bytes/us", "level-2 cache of a GPU, or of one core of a host", &Target::l2_bytes_per_us, 1e3,
     1e9, F::Both},
    {"l3_bytes_per_us", "bytes/us", "level-3 cache of one core", &Target::l3_bytes_per_us, 1e3, 1e8, F::Cpu},
    {"shared_bytes_per_us", "bytes/us", "shared memory of one multiprocessor", &Target::shared_bytes_per_us, 1e3, 1e8,
     F::Cuda},
    {"saturating_bytes", "bytes", "loads in flight on each multiprocessor that saturate memory",
     &Target::saturating_bytes, 256, 16 * kMB, F::Cuda},
    {"memory_latency_us", "us", "a dependent load from memory", &Target::memory_latency_us, 0.01, 100, F::Both},
    {"l1_latency_us", "us", "a dependent load from the level-1 cache", &Target::l1_latency_us, 1e-4, 10, F::Both},
    {"l2_latency_us", "us", "a dependent load from the level-2 cache", &Target::l2_latency_us, 1e-4, 10, F::Both},
    {"l3_latency_us", "us", "a dependent load from the level-3 cache", &Target::l3_latency_us, 1e-4, 10, F::Cpu},
    {"shared_latency_us", "us", "a dependent load from shared memory", &Target::shared_latency_us, 1e-4, 10, F::Cuda},
    {"barrier_us", "us", "a barrier of a block of 256 threads", &Target::barrier_us, 1e-4, 10, F::Cuda},
    {"grid_barrier_us", "us", "a barrier of all resident blocks", &Target::grid_barrier_us, 0.01, 1e4, F::Cuda},
    {"launch_us", "us", "what one more kernel (on a host, one more parallel loop) adds", &Target::launch_us, 1e-3, 1e4,
     F::Both},
    {"host_launch_us", "us", "what one launch takes the host", &Target::host_launch_us, 0.01, 1e4, F::Cuda},
    {"iteration_us", "us", "what starting a compiled body once more takes the host", &Target::iteration_us, 0.01, 1e4,
     F::Both},
    {"host_copy_bytes_per_us", "bytes/us", "copies between a GPU and pinned memory of the host",
     &Target::host_copy_bytes_per_us, 100, 1e7, F::Cuda},
    {"host_wait_us", "us", "until the host goes on when a GPU has finished, and the GPU when the host has",
     &Target::host_wait_us, 0.1, 1e4, F::Cuda},
    {"kernel_us", "us", "a kernel that moves next to nothing, between the events around it", &Target::kernel_us, 0.1,
     1e4, F::Cuda},
    {"block_us", "us", "what each block adds to a grid of many empty ones", &Target::block_us, 1e-6, 1, F::Cuda},
    {"warp_exchange_us", "us", "what each warp adds to a reduction across the warps of a block",
     &Target::warp_exchange_us, 1e-4, 10, F::Cuda},
    {"clock_mhz", "MHz", "clock of multiprocessors or cores under load", &Target::clock_mhz, 100, 1e4, F::Both},
    {"fma_per_cycle", "results/cycle", "f32 multiply-add, multiply, add", &Target::fma_per_cycle, 0.25, 4096, F::Both},
    {"integer_per_cycle", "results/cycle", "32-bit integer add, compare, logic", &Target::integer_per_cycle, 0.25, 4096,
     F::Both},
    {"special_per_cycle", "results/cycle", "reciprocal, rsqrt, exp2, log2, sine; on a host, division",
     &Target::special_per_cycle, 0.01, 4096, F::Both},
    {"conversion_per_cycle", "results/cycle", "between f32 and integers or narrower floats",
     &Target::conversion_per_cycle, 0.01, 4096, F::Both},
    {"load_store_per_cycle", "results/cycle", "32-bit elements that load/store units take",
     &Target::load_store_per_cycle, 0.25, 4096, F::Both},
    {"gather_per_cycle", "results/cycle", "32-bit elements of a gather, from the level-1 cache",
     &Target::gather_per_cycle, 0.01, 4096, F::Cpu},
    {"shuffle_per_cycle", "results/cycle", "32-bit elements that lanes of a warp exchange", &Target::shuffle_per_cycle,
     0.25, 4096, F::Cuda},
    {"tensor_f16_per_cycle", "results/cycle", "multiply-adds of f16 or bf16 on tensor cores",
     &Target::tensor_f16_per_cycle, 1, 1e6, F::Cuda},
    {"tensor_tf32_per_cycle", "results/cycle", "multiply-adds of TF32 on tensor cores", &Target::tensor_tf32_per_cycle,
     1, 1e6, F::Cuda},
    {"warpgroup_f16_per_cycle", "results/cycle", "multiply-adds of f16 or bf16 in products of a warpgroup; 0: none",
     &Target::warpgroup_f16_per_cycle, 0, 1e6, F::Cuda},
    {"tensor_i8_per_cycle", "results/cycle", "multiply-adds of 8-bit integers on tensor cores",
     &Target::tensor_i8_per_cycle, 1, 1e6, F::Cuda},
    {"tensor_f8_per_cycle", "results/cycle", "multiply-adds of 8-bit floats on tensor cores, with sums in f32; 0: none",
     &Target::tensor_f8_per_cycle, 0, 1e6, F::Cuda},
};

} // namespace

std::span<const TargetField> target_fields() { return kFields; }

double TargetField::get(const Target& target) const {
  return std::visit([&](auto m) { return static_cast<double>(target.*m); }, member);
}

void TargetField::set(Target& target, double value) const {
  std::visit([&](auto m) { target.*m = static_cast<std::decay_t<decltype(target.*m)>>(value); }, member);
}

std::string_view name(FigureSource source) {
  switch (source) {
  case FigureSource::Published: return "published";
  case FigureSource::Measured: return "measured";
  case FigureSource::Estimated: return "estimated";
  }
  return "?";
}

std::string_view name(Target::Kind kind) { return kind == Target::Kind::Cuda ? "cuda" : "cpu"; }

} // namespace tessera
