#include "frontend/fx/importer.h"
#include "frontend/model.h"
#include "frontend/onnx/importer.h"

namespace tessera {

Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options) {
  TESSERA_ASSIGN(bool archive, fx::is_archive(path));
  return archive ? fx::import_file(path, options) : onnx::import_file(path, options);
}

} // namespace tessera
