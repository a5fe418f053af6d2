// Operators of a loaded executable that run by their reference, from the texts that codegen/driver/host_payload.h describes.
#pragma once
#include "runtime/executable.h"

namespace tessera {

// The function of a host step of a loaded executable. Errors: UnsupportedOp (an operator of a library that is not
// loaded); CorruptFile, also for a text whose types differ from the step's buffers. The function rejects operands that
// differ from the text.
[[nodiscard]] Result<decltype(HostStep::run)> resolve_host_step(const HostStep& step, const Executable& executable);

} // namespace tessera
