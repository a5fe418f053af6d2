// A program in a process of its own: its crash or hang is a result.
#pragma once
#include "base/result.h"
#include <chrono>
#include <string>
#include <vector>

namespace tessera::command {

struct ChildEnd {
  int exit_code = -1;                    // -1: it ended by a signal, or was ended
  int signal = 0;                        // that ended it
  bool timed_out = false;                // it was ended
  [[nodiscard]] std::string str() const; // "exit code 1", "signal Segmentation fault", "no end within 60 s"
  bool operator==(const ChildEnd&) const = default;
};
// Runs a program (a path, with arguments) in a process group of its own, its output in the file `output`. Error
// Internal: it cannot be started.
[[nodiscard]] Result<ChildEnd> run_child(const std::vector<std::string>& command, const std::string& output,
                                         std::chrono::seconds timeout);
// The path of the program that runs.
[[nodiscard]] std::string own_path();

} // namespace tessera::command
