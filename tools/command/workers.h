// Tasks in processes of their own: a crash or a hang is the result of one task, and the rest goes on.
#pragma once
#include "base/result.h"
#include <chrono>
#include <functional>
#include <string>

namespace tessera::command {

struct TaskEnd {
  enum class How { Answered, Crashed, TimedOut } how = How::Answered;
  std::string text; // the answer; of a crash, what ended the process and the first line that it wrote to standard error
  double ms = 0;
};

struct WorkerOptions {
  size_t tasks = 0, jobs = 1; // of each: how many there are, how many processes work at a time
  std::chrono::seconds timeout{60};
  std::function<std::string(size_t task)> work; // in the worker; returns one line
  // Here, in whatever order tasks end. False: the worker that did it is in doubt and does no other.
  std::function<bool(size_t task, const TaskEnd&)> done;
};

// A worker does task after task, as starting one may be expensive (a GPU's context). One that crashes is replaced; a
// task that crashed or hung after others is done again as the first of a worker of its own, and only that counts. To be
// called while this process has one thread. Errors: Internal (no process, no pipe).
[[nodiscard]] Status run_in_workers(const WorkerOptions& options);

} // namespace tessera::command
