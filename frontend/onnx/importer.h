// ONNX model files to Graph. Protobuf stays inside this folder.
#pragma once
#include "frontend/model.h"

namespace tessera::onnx {

// Reads a model file. External data is memory-mapped; a tensor whose layout allows is a view of the map. Local
// functions are inlined. Every diagnostic names file and node. Errors: FileError, MalformedModel, BadWeights,
// UnsupportedOp, ...
[[nodiscard]] Result<ImportedModel> import_file(const std::string& path, const ImportOptions& options = {});
// The same from memory; `directory` is where external data is looked for.
[[nodiscard]] Result<ImportedModel> import_bytes(std::string_view bytes, const std::string& directory,
                                                 const ImportOptions& options = {},
                                                 const std::string& display_name = "<memory>");
// Imports a file and goes on after each node that fails.
[[nodiscard]] Result<ModelSurvey> survey_file(const std::string& path, const ImportOptions& options = {});
// One serialized SequenceProto, OptionalProto or MapProto, whose items are to be of this type.
[[nodiscard]] Result<Tensor> read_list_file(const std::string& path, const ItemType& items,
                                            std::string* name = nullptr);
// One serialized TensorProto (backend tests' input_N.pb); sequences, maps and optionals are refused with
// UnsupportedType.
[[nodiscard]] Result<Tensor> read_tensor_file(const std::string& path, std::string* name = nullptr);

} // namespace tessera::onnx
