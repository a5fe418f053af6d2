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
  if (archive) return fx::import_file(path, options);
  auto model = onnx::import_file(path, options);
  // The name says what the file was meant to be.
  if (!model.ok() && model.error().code == ErrorCode::MalformedModel && path.ends_with(".pt2"))
    return std::move(model).take_error().note("nor is it an archive of torch.export.save, which begins as a zip file: "
                                              "save the program again, or copy it again");
  return model;
}

} // namespace tessera
