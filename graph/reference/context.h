#pragma once
#include "graph/ir/graph.h"
#include "graph/ir/operator.h"

namespace tessera {

// A record's reference is given this. References are plain loops over concrete tensors, independent of the meaning.
// They are slow and obvious. An operand that is left out is an undefined tensor.
struct ReferenceContext {
  const Node& node; // attributes, opset
  std::vector<Tensor> operands;
  std::vector<TensorType> result_types; // dtype always right; the shape may hold symbols: compute sizes from operands
  int result_count = 1;
  std::vector<Tensor> results; // to fill
  // Contents of SymShape attributes for these sizes (attributes "dims" of primitives).
  std::function<Result<int64_t>(const SymExpr&)> eval;
  // Runs a graph that the node has as an attribute: inputs and outputs in order.
  std::function<Result<std::vector<Tensor>>(const Graph&, const std::vector<Tensor>& inputs)> run;
  [[nodiscard]] Result<Dims> dims(std::string_view attribute) const;
  [[nodiscard]] Diagnostic error(ErrorCode code, std::string message) const;
};
} // namespace tessera
