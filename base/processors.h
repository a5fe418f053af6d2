// How many threads are worth having.
#pragma once
#include <string>

namespace tessera {

// Processors that this process may use at the same time, at least 1: those of its affinity, and no more than the quota of
// its control group (of a container, cgroup v2 or v1) and of those above it, rounded up. `root`: where /proc and /sys are
// looked for, for tests.
[[nodiscard]] int usable_processors(const std::string& root = "");

} // namespace tessera
