// The device, driver and compiler of a compilation, as records name them.
#pragma once
#include "codegen/driver/compile.h"
#include "measure/tune/records.h"

namespace tessera {

// Nothing if the device is unknown: code for a GPU that is absent and not named by CompileOptions::device_name.
[[nodiscard]] std::optional<TunedTarget> tuned_target(const CompileOptions& options);

} // namespace tessera
