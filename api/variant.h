// What a session compiled, for those who look into it: the command, tests. Not installed.
#pragma once
#include "api/session.h"
#include "codegen/driver/compile.h"
#include "codegen/tune/background.h"

namespace tessera {

// One compiled variant and what the compile said.
struct SessionVariant {
  std::string label; // "generic", "batch=4, seq%8=0", "for s86=1, s10=4" (after a missed assumption)
  bool specialized = false;
  bool fits_no_call = false;      // it only reads values that decide the structure (ImportOptions::undetermined)
  int conditions = 0;             // of a specialized one: how many dimensions it is made for
  std::set<std::string> as_loops; // CompileOptions::as_loops that it was compiled with
  Compiled compiled;
  // Those that it has replaced, with kernels that were tuned less.
  std::vector<std::shared_ptr<const Executable>> earlier;
};

} // namespace tessera
