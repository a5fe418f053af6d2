// Errors for lack of memory or threads, which name the limits of the process.
#pragma once
#include "base/diagnostic.h"
#include <string>
#include <vector>

namespace tessera {

// Notes on the limits of the process: `ulimit -v` and, for threads, `ulimit -u` where they are set.
[[nodiscard]] std::vector<std::string> limit_notes(bool of_threads);
// Error OutOfMemory with these notes.
[[nodiscard]] Diagnostic out_of_memory(std::string message);

} // namespace tessera
