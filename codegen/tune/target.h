// On what a compile runs and by what it is made, as records name it.
#pragma once
#include "codegen/driver/compile.h"
#include "codegen/tune/records.h"

namespace tessera {

// Nothing where the device is not known: code for a GPU that is not here and was not named
// (CompileOptions::device_name).
[[nodiscard]] std::optional<TunedTarget> tuned_target(const CompileOptions& options);

} // namespace tessera
