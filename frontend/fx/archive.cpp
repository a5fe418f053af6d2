#include "frontend/fx/importer.h"

namespace tessera::fx {

Result<ImportedModel> import_file(const std::string& path, const ImportOptions&) {
  return Diagnostic(ErrorCode::UnsupportedFeature, "archives are not read yet: " + path);
}

} // namespace tessera::fx
