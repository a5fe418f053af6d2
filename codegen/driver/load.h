// Files that `tessera compile` wrote, back to executables whose code is linked.
#pragma once
#include "runtime/executor.h"

namespace tessera {

// Whether the file begins as an executable of ours does. False too when it cannot be read.
[[nodiscard]] bool is_compiled_file(const std::string& path);
// Loads and links. Errors: those of load_executable, CodegenError, CorruptFile for the text of a host operator.
[[nodiscard]] Result<std::shared_ptr<Executable>> load_compiled(const std::string& path);

} // namespace tessera
