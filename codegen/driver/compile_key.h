// The key of a compile in the cache of plans: all that its result depends on besides the model.
#pragma once
#include "base/key_text.h"
#include "base/result.h"
#include "codegen/compilation/options.h"

namespace tessera {

// The compiler: equal for programs that were built from the same sources of Tessera with the same LLVM.
[[nodiscard]] const std::string& compiler_build();

// Adds the options that change what a compile makes; not those that say how it is done and what is reported. False:
// something among them has no text (a plan file, measured schedules of the caller's).
[[nodiscard]] bool add_options(KeyText& key, const CompileOptions& options);
// Adds the device: what code is made for, by which compilers and assemblers, by which figures and measured schedules of
// the target's. `device`: Executable::target. Errors: those of making its backend.
[[nodiscard]] Status add_device(KeyText& key, const CompileOptions& options, std::string& device);

} // namespace tessera
