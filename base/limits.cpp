#include "base/limits.h"
#include <sys/resource.h>

namespace tessera {

std::vector<std::string> limit_notes(bool of_threads) {
  std::vector<std::string> notes;
  struct rlimit limit {};
  if (of_threads && ::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    notes.push_back("the user's processes and threads are limited to " + std::to_string(limit.rlim_cur) +
                    " (ulimit -u; a control group may allow fewer)");
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    notes.push_back("the process's address space is limited to " + std::to_string(limit.rlim_cur >> 20) +
                    " MB (ulimit -v)");
  if (notes.empty())
    notes.emplace_back(of_threads ? "raise the limit of threads (ulimit -u, the control group's pids.max)"
                                  : "free memory, raise the control group's limit, or give smaller inputs");
  return notes;
}

Diagnostic out_of_memory(std::string message) {
  Diagnostic d(ErrorCode::OutOfMemory, std::move(message));
  d.notes = limit_notes(false);
  return d;
}

} // namespace tessera
