// Loads files written by `tessera compile` as executables with linked code.
#pragma once
#include "runtime/executor.h"

namespace tessera {

// True if the file has the header of an executable. False if it cannot be read.
[[nodiscard]] bool is_compiled_file(const std::string& path);
// Loads and links. Errors: those of load_executable, CodegenError, CorruptFile for the text of a host operator.
[[nodiscard]] Result<std::shared_ptr<Executable>> load_compiled(const std::string& path);

} // namespace tessera
