#include "frontend/fx/importer.h"
#include "frontend/model.h"
#include "frontend/onnx/importer.h"
#include "graph/support/file.h"

namespace tessera {
namespace {

// A pickle begins with the opcode PROTO and its version. A model of ONNX cannot: it has no field of such a number.
Result<bool> is_pickle(const std::string& path) {
  TESSERA_ASSIGN(FileDescriptor file, open_file(path));
  unsigned char magic[2] = {};
  TESSERA_ASSIGN(size_t read, read_some(file, path, magic, sizeof magic));
  return read == sizeof magic && magic[0] == 0x80 && magic[1] >= 2 && magic[1] <= 5;
}

} // namespace

Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options) {
  TESSERA_ASSIGN(bool archive, fx::is_archive(path));
  TESSERA_ASSIGN(bool pickle, is_pickle(path));
  if (pickle) {
    Location where;
    where.file = path;
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      "the file is a pickle, as torch.save writes; pickles are not read")
        .note(fx::kSaveAgain);
  }
  return archive ? fx::import_file(path, options) : onnx::import_file(path, options);
}

} // namespace tessera
