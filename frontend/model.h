// A model, whatever it was imported from.
#pragma once
#include "frontend/options.h"
#include "graph/ir/graph.h"

namespace tessera {

struct ImportedModel {
  Graph graph;
  ModelInfo info;
  std::string path;
  std::vector<std::string> warnings; // what the model says of itself and is not so, without being an error
};

// Reads a model file of any known format, recognised by its first bytes: an ONNX model, or an archive of torch.export.
// Weights are views of the mapped file where their layout allows. Errors: FileError, and those of the format's importer
// (onnx/importer.h, fx/importer.h).
[[nodiscard]] Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options = {});

} // namespace tessera
