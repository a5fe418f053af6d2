// Parts of an ONNX model as models of their own: some of its nodes, with inputs in the place of what they read from
// others. Protobuf stays inside.
#pragma once
#include "base/tensor.h"
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace tessera::onnx {

struct PartNode {
  std::string name, op;
  std::vector<std::string> reads; // values of the main graph, those that subgraphs read, too
  std::vector<std::string> results;
  bool constant = false; // reads nothing, and is the same in every call
};
struct PartValue {
  DType dtype = DType::F32;
  std::vector<std::variant<int64_t, std::string>> dims; // a size, or the name of a symbolic one
};
struct Part {
  std::set<size_t> nodes;                  // by index in nodes(); constants that they read are added
  std::map<std::string, PartValue> inputs; // values that the nodes read and do not compute
  std::map<std::string, PartValue> outputs;
  std::map<std::string, Tensor> weights; // in the place of the model's
};

class ModelParts {
public:
  // Errors: FileError, MalformedModel, those of reading weights.
  [[nodiscard]] static Result<ModelParts> open(const std::string& path);
  ModelParts(ModelParts&&) noexcept;
  ModelParts& operator=(ModelParts&&) noexcept;
  ~ModelParts();

  [[nodiscard]] const std::vector<PartNode>& nodes() const; // of the main graph, in topological order
  [[nodiscard]] const std::vector<std::string>& inputs() const;
  [[nodiscard]] const std::vector<std::string>& outputs() const;
  [[nodiscard]] bool is_weight(const std::string& name) const;
  [[nodiscard]] Result<Tensor> weight(const std::string& name);
  // Values that the nodes of the part read from others: neither computed by them, nor weights, nor constants.
  [[nodiscard]] std::set<std::string> needs(const std::set<size_t>& nodes) const;
  // Weights that they read.
  [[nodiscard]] std::set<std::string> weights_of(const std::set<size_t>& nodes) const;
  // The part as a serialized model with its weights inside. Errors: those of weights; UnsupportedFeature above 2 GiB,
  // UnsupportedType for elements that ONNX files cannot hold.
  [[nodiscard]] Result<std::string> serialized(const Part& part);

private:
  struct Impl;
  explicit ModelParts(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace tessera::onnx
