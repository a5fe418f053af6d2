// A model, whatever it was imported from.
#pragma once
#include "frontend/options.h"
#include "graph/ir/graph.h"

namespace tessera {

// A weight whose bytes lie in a mapped file as they are, but not aligned: a copy of them has its place.
struct CopiedWeight {
  std::weak_ptr<const void> owner; // of the copy
  const std::byte* copy = nullptr; // good while it is owned
  Storage source;
};

// A value that stays from call to call, as a buffer of a module does that forward() changes. The graph reads it as an
// input and has its new value as an output, of one type: those of states are the last inputs and the last outputs.
struct ModelState {
  std::string name; // "cache.keys"
  Tensor first;     // what the first call reads; its sizes are the state's
};

struct ImportedModel {
  Graph graph;
  std::vector<ModelState> states; // in the order of their inputs
  ModelInfo info;
  std::string path;
  std::vector<std::string> warnings;     // what the model says of itself and is not so, without being an error
  std::vector<std::string> weight_files; // files that hold weights, by their paths from the model's folder
  std::vector<CopiedWeight> copied_weights;
};

// Reads a model file of any known format, recognised by its first bytes: an ONNX model, or an archive of torch.export.
// Weights are views of the mapped file where their layout allows. Errors: FileError, and those of the format's importer
// (onnx/importer.h, fx/importer.h).
[[nodiscard]] Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options = {});

// A node of a model that cannot be imported.
struct RefusedNode {
  std::string op;             // "Foo", "com.example.Foo", "aten.foo.default"; empty for an input of the model
  int64_t version = 0;        // of its domain's operators, as the model imports them; 0 where there is none
  std::optional<DType> dtype; // of its first operand, where that is known
  Diagnostic reason;          // its location names the node
};
struct ModelSurvey {
  // The part that could be imported. A value that a refused node defines is an input where the model declares its type;
  // otherwise, nodes that read it are left out, and only looked up. Values that nothing reads are outputs.
  ImportedModel model;
  std::vector<RefusedNode> refused; // in the model's order, each once
};
// Imports a model and goes on after each node that cannot be imported. Errors: what concerns no node (FileError, a file
// that does not parse ...).
[[nodiscard]] Result<ModelSurvey> survey_model(const std::string& path, const ImportOptions& options = {});

} // namespace tessera
