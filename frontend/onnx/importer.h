// ONNX model files to Graph. Protobuf stays inside this folder.
#pragma once
#include "graph/ir/graph.h"
#include <map>
#include <string>

namespace tessera::onnx {

struct ImportOptions {
  // Sizes given by the user: dim_param name ("batch") or input name -> dims, -1 where free. Those sizes become
  // constants.
  std::map<std::string, int64_t> dim_values;
  std::map<std::string, Dims> input_shapes;
  // Hints for assumptions, not constants: symbol name -> size of the call that asks for this compilation.
  std::map<std::string, int64_t> dim_hints;
  bool allow_missing_weights = false; // graph-only files: weights without data (explain, golden tests)
};

struct ModelInfo {
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets; // domain -> version, "" is the default domain
  std::string producer;                  // name and version
  int functions = 0;                     // local functions in the file
  int nodes = 0;                         // after they were inlined
};
struct ImportedModel {
  Graph graph;
  ModelInfo info;
  std::string path;
  std::vector<std::string> warnings; // what the model says of itself and is not so, without being an error
};

// Reads a model file. External data is memory-mapped; a tensor whose layout allows is a view of the map. Local
// functions are inlined. Every diagnostic names file and node. Errors: FileError, MalformedModel, BadWeights,
// UnsupportedOp, ...
[[nodiscard]] Result<ImportedModel> import_file(const std::string& path, const ImportOptions& options = {});
// The same from memory; `directory` is where external data is looked for.
[[nodiscard]] Result<ImportedModel> import_bytes(std::string_view bytes, const std::string& directory,
                                                 const ImportOptions& options = {},
                                                 const std::string& display_name = "<memory>");
// One serialized TensorProto (backend tests' input_N.pb); sequences, maps and optionals are refused with
// UnsupportedType.
[[nodiscard]] Result<Tensor> read_tensor_file(const std::string& path, std::string* name = nullptr);

} // namespace tessera::onnx
