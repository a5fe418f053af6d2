// Loads files written by `tessera compile` as executables that are ready to run. Needs neither LLVM nor protobuf.
#pragma once
#include "runtime/executor.h"
#include "runtime/plan_bytes.h"

namespace tessera {

// True if the file has the header of an executable. False if it cannot be read.
[[nodiscard]] bool is_compiled_file(const std::string& path);
// The variants of a file, the generic one first, linked. Errors: those of load_executables and HostCode::load; CorruptFile
// for the text of a host operator.
[[nodiscard]] Result<std::vector<FileExecutable>> load_compiled(const std::string& path);
// The same of a plan in the cache (runtime/plan_bytes.h).
[[nodiscard]] Result<std::shared_ptr<Executable>> load_plan(Storage plan, const std::string& name,
                                                            const ModelParts& parts);

} // namespace tessera
