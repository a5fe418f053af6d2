// An executable as bytes, for the cache: a compiled file (file_format.h) of one variant, which refers to the bytes of its
// model where they lie in it, and has the others itself.
#pragma once
#include "runtime/executor.h"

namespace tessera {

// The place of bytes in a file or part of a model.
struct BytesPlace {
  std::string file;
  int64_t offset = 0;
};
using BytesPlaceFn = std::function<std::optional<BytesPlace>(const void* data, size_t bytes)>;
// A part of a model, by the name that BytesPlace::file has.
using ModelParts = std::map<std::string, Storage>;

// Bytes of constants for which `place` has no place are part of it. Errors: those of save_executables, and
// UnsupportedFeature where it would have more than `most` bytes.
[[nodiscard]] Result<std::string> plan_bytes(const Executable& executable, const BytesPlaceFn& place, int64_t most);
// The executable of such bytes, linked. `name` is what errors call it. Constants are views of `plan` and of `parts`.
// Errors: those of load_executables.
[[nodiscard]] Result<std::shared_ptr<Executable>> load_plan_bytes(Storage plan, const std::string& name,
                                                                  const ModelParts& parts, const LinkFn& link,
                                                                  const ResolveHostStepFn& resolve);

} // namespace tessera
