// Figures that follow from those of a target's file.
#pragma once
#include "codegen/target/target.h"
#include <algorithm>

namespace tessera {

// Multiprocessors or cores.
[[nodiscard]] inline int processors(const Target& t) { return t.is_gpu() ? t.multiprocessors : t.cores; }
// A kernel that runs alone and moves next to nothing, in microseconds. What one adds to a sequence is Target::launch_us.
[[nodiscard]] inline double lone_launch_us(const Target& t) { return t.is_gpu() ? t.kernel_us : t.launch_us; }
// Memory as all processors together reach it, in bytes per microsecond.
[[nodiscard]] inline double reached_bandwidth(const Target& t) {
  return t.is_gpu() ? t.memory_bytes_per_us : std::min(t.memory_bytes_per_us, t.core_memory_bytes_per_us * t.cores);
}
// The least that one more step of a body takes: a kernel, or on a host about what starting the body does. Microseconds.
[[nodiscard]] inline double least_step_us(const Target& t) {
  return t.is_gpu() ? std::max(t.host_launch_us, t.kernel_us) : t.iteration_us;
}
// Latency of memory, in microseconds, for each phase of a kernel that waits for the phase before; a host hides it.
[[nodiscard]] inline double phase_latency_us(const Target& t) { return t.is_gpu() ? t.memory_latency_us : 0; }
// The time in which all processors read or write `bytes`, in the nearest cache that holds them. Microseconds.
[[nodiscard]] inline double transfer_us(const Target& t, double bytes) {
  const auto l2 = static_cast<double>(t.l2_bytes), l3 = static_cast<double>(t.l3_bytes);
  if (t.is_gpu()) return bytes / (bytes <= l2 / 2 ? t.l2_bytes_per_us : reached_bandwidth(t));
  const double cores = t.cores;
  if (bytes <= l2 * cores) return bytes / (t.l2_bytes_per_us * cores);
  return bytes / (bytes <= l3 ? t.l3_bytes_per_us * cores : reached_bandwidth(t));
}
// True if the device's memory is not the host's: what the host reads is copied, after a wait.
[[nodiscard]] inline bool has_own_memory(const Target& t) { return t.host_copy_bytes_per_us > 0; }

} // namespace tessera
