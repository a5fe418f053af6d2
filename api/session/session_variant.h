// A variant as the session handles it, which knows no compiler.
#pragma once
#include "api/session/later_compiled.h"
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace tessera {

struct Executable; // runtime/executable.h

// One compiled variant and what the compile said.
struct SessionVariant {
  uint64_t number = 0; // ExecutableSource::Entry; the pool gives it
  std::string label;   // "generic", "batch=4, seq%8=0", "for s86=1, s10=4" (after a missed assumption)
  bool specialized = false;
  bool fits_no_call = false;      // it only reads values that decide the structure (ImportOptions::undetermined)
  int conditions = 0;             // of a specialized one: how many dimensions it is made for
  std::set<std::string> as_loops; // CompileOptions::as_loops that it was compiled with
  std::shared_ptr<const Executable> executable;
  LaterCompiled compiled;                  // of `executable`; null where the library holds no compiler
  bool from_file = false;                  // of a compiled file: nothing was compiled
  bool from_plan = false;                  // of the cache of plans: nothing was compiled
  int64_t kernels = 0, cached_kernels = 0; // that the compile needed; those of them that the cache folder had
  int64_t contained =
      0; // internal failures of the compile that cost a schedule, a route or a pass (CompileReport::contained)
  // Those that it has replaced, with kernels that were tuned less.
  std::vector<std::shared_ptr<const Executable>> earlier;
};

} // namespace tessera
