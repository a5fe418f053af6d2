#include "frontend/onnx/importer.h"
#include "frontend/onnx/graph_builder.h"

namespace tessera::onnx {

namespace {

std::string folder_of(const std::string& path) {
  auto slash = path.rfind('/');
  return slash == std::string::npos ? "" : slash == 0 ? "/" : path.substr(0, slash);
}

std::string_view text_of(const Storage& s) { return {reinterpret_cast<const char*>(s.data), s.bytes}; }

Result<ImportedModel> import(std::string_view bytes, const ImportOptions& options, WeightLoader weights,
                             const std::string& file) {
  TESSERA_ASSIGN(ParsedModel parsed, parse_model(bytes, file));
  ImportedModel out;
  out.path = file;
  GraphBuilder builder(parsed, options, weights, file, out);
  if (auto status = builder.build(); !status.ok()) {
    Location where;
    where.file = file;
    return std::move(status).take_error().at(std::move(where));
  }
  return out;
}

} // namespace

Result<ImportedModel> import_file(const std::string& path, const ImportOptions& options) {
  TESSERA_ASSIGN(Storage mapped, map_file(path));
  return import(text_of(mapped), options,
                WeightLoader(folder_of(path), path, mapped.owner, options.allow_missing_weights), path);
}

Result<ImportedModel> import_bytes(std::string_view bytes, const std::string& directory, const ImportOptions& options,
                                   const std::string& display_name) {
  return import(bytes, options, WeightLoader(directory, "", nullptr, options.allow_missing_weights), display_name);
}

Result<Tensor> read_tensor_file(const std::string& path, std::string* name) {
  TESSERA_ASSIGN(Storage mapped, map_file(path));
  Location where;
  where.file = path;
  proto::TensorProto tensor;
  TESSERA_TRY(parse_message(text_of(mapped), tensor, path));
  // Sequences, maps and optionals are messages of their own; each keeps its elements in the field that is TensorProto's
  // segment, which no writer uses.
  if (tensor.has_segment())
    return Diagnostic(ErrorCode::UnsupportedType, where, "is a sequence, map or optional; only tensors are supported");
  WeightLoader weights(folder_of(path), path, nullptr, false);
  TESSERA_ASSIGN(Tensor out, weights.load(tensor, where));
  if (name != nullptr) *name = tensor.name();
  return out;
}

} // namespace tessera::onnx
