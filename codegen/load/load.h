// Loads files written by `tessera compile` as executables that are ready to run. Needs neither LLVM nor protobuf.
#pragma once
#include "runtime/executor.h"

namespace tessera {

// True if the file has the header of an executable. False if it cannot be read.
[[nodiscard]] bool is_compiled_file(const std::string& path);
// The variants of a file, the generic one first, linked. Errors: those of load_executables and HostCode::load; CorruptFile
// for the text of a host operator.
[[nodiscard]] Result<std::vector<FileVariant>> load_compiled(const std::string& path);

} // namespace tessera
