// The contents of a model file, read without importing it, so also those of models whose operators have no definition.
// Numbers of dimensions stay as they are written, "?" where there is none.
#pragma once
#include "base/diagnostic.h"
#include "base/result.h"
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

struct DescribedValue {
  std::string name, type; // "f32[batch, 4]"; empty where the file does not say it
};
struct DescribedWeight {
  std::string name, type;
  std::string dtype; // of its elements
  int64_t bytes = 0;
  std::string file; // relative to the model's folder; empty: in the model's file
};
struct DescribedNode {
  Location place;       // as errors name it (node, op, first output, source)
  int depth = 0;        // in bodies of other nodes
  std::string function; // of the model, that has the node in its body; empty: in the graph
  std::vector<std::string> inputs, outputs;
  std::vector<std::pair<std::string, std::string>> attributes; // with its value as text
};

struct ModelDescription {
  std::string format; // "ONNX", "PyTorch"
  int64_t version = 0;
  std::string producer, domain, graph, documentation;
  int64_t model_version = 0;
  std::vector<std::pair<std::string, int64_t>> opsets;       // operator domain -> version
  std::vector<std::pair<std::string, std::string>> metadata; // keys that the exporter chose
  std::vector<DescribedValue> inputs, outputs;               // without weights
  std::vector<DescribedWeight> weights;
  std::vector<DescribedNode> nodes;         // in the file's order, bodies behind their node
  std::map<std::string, std::string> types; // of values that the file declares
  std::vector<std::string> functions;       // of the model's own, by name
};

// Errors: FileError, MalformedModel, UnsupportedFeature (files of unknown versions, pickles).
[[nodiscard]] Result<ModelDescription> describe_model(const std::string& path);
namespace onnx {
[[nodiscard]] Result<ModelDescription> describe_file(const std::string& path);
}
namespace fx {
[[nodiscard]] Result<ModelDescription> describe_file(const std::string& path);
}

} // namespace tessera
