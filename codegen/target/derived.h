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
// True if the device's memory is not the host's: what the host reads is copied, after a wait.
[[nodiscard]] inline bool has_own_memory(const Target& t) { return t.host_copy_bytes_per_us > 0; }

} // namespace tessera
