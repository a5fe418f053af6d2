// Candidates of a reduction: parts of a model with the inputs that they had in one run of it.
#pragma once
#include "frontend/onnx/parts.h"
#include "graph/ir/graph.h"
#include "inputs.h"

namespace tessera::command {

struct Candidate {
  std::set<size_t> nodes;           // by index in ModelParts::nodes()
  bool fixed = false;               // sizes are numbers in the place of symbols
  std::map<int64_t, int64_t> sizes; // dimensions of inputs and weights that are cut: old size to new
};

class Candidates {
public:
  // Runs the model once by its references. Errors: those of import, of the references.
  [[nodiscard]] static Result<Candidates> create(const std::string& path, const ImportOptions& import,
                                                 const Tensors& inputs);
  [[nodiscard]] const onnx::ModelParts& parts() const { return parts_; }
  // Nodes that a reduction may remove: all but constants.
  [[nodiscard]] std::set<size_t> all() const;
  // Sizes above 1 of a candidate's inputs and weights, the largest first.
  [[nodiscard]] Result<std::vector<int64_t>> sizes(const Candidate& candidate);
  // Writes DIR/model.onnx and DIR/inputs/NAME.npy. Error UnsupportedFeature where the part cannot be a model: a value
  // that it reads is no tensor, or not one of the graph's.
  [[nodiscard]] Status write(const Candidate& candidate, const std::string& folder);

private:
  Candidates(onnx::ModelParts parts, Graph graph) : parts_(std::move(parts)), graph_(std::move(graph)) {}
  [[nodiscard]] Result<onnx::PartValue> type_of(const std::string& name, bool fixed, const Tensor& tensor) const;

  onnx::ModelParts parts_;
  Graph graph_; // as imported
  std::map<std::string, ValueId> values_;
  std::map<std::string, Tensor> tensors_; // what they were in the run
};

} // namespace tessera::command
