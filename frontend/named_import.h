// Models imported from a file that messages call by another name than its path: the one that somebody gave, which may not
// lead there any more.
#pragma once
#include "frontend/model.h"

namespace tessera {

// The same as import_model() and the functions that it calls, but errors name the file `name`.
[[nodiscard]] Result<ImportedModel> import_model(const std::string& path, const std::string& name,
                                                 const ImportOptions& options);
namespace onnx {
[[nodiscard]] Result<ImportedModel> import_file(const std::string& path, const std::string& name,
                                                const ImportOptions& options);
}
namespace fx {
[[nodiscard]] Result<ImportedModel> import_file(const std::string& path, const std::string& name,
                                                const ImportOptions& options);
}

} // namespace tessera
