// The values of a graph in f64: what they would be without the rounding of their types.
//
// Each node is run by its reference (graph/reference) on operands of which all floating-point ones are f64, with results
// that are f64, casts among them. Integers and booleans are as they are. What has another meaning in another type is run
// on operands of its own types: nodes with bodies, and those that read bytes as another type.
#pragma once
#include "graph/reference/evaluator.h"
#include "graph/scalar/scalar.h"
#include <initializer_list>

namespace tessera::accuracy {

class ExactReference {
public:
  // The graph must outlive it.
  explicit ExactReference(const Graph& graph);
  // Runs the whole graph. After each node but constants `each` gets its results, and may replace them.
  using Each = std::function<Status(NodeId node, std::vector<Tensor>& results)>;
  // `sizes`: symbols of the inputs; those that nodes define are added. Errors: those of the references, of `each`.
  [[nodiscard]] Status run(const std::map<std::string, Tensor>& inputs, SymValues& sizes, const Each& each);
  // One node on these operands, of any floating-point types.
  [[nodiscard]] Result<std::vector<Tensor>> node(NodeId id, std::vector<Tensor> operands, const SymValues& sizes);

private:
  const Graph& graph_;
  Graph wide_; // the same with f64 in the place of every floating-point type
};

// Adds the sizes that only running a node defines, by its results.
void bind_defined_sizes(const Graph& graph, const Node& node, const std::vector<Tensor>& results, SymValues& sizes);
// A copy in f64 of a floating-point tensor; others as they are.
[[nodiscard]] Result<Tensor> widened(const Tensor& tensor);
// Whether every call computes something else: random numbers without a seed, in a body too, and what the operator of
// a library changes.
[[nodiscard]] bool is_random(const Node& node);

// Whether the scalar body of a pointwise operator has one of these.
[[nodiscard]] bool computes_by(const Graph& graph, const Node& node, std::initializer_list<ScalarOp> ops);

} // namespace tessera::accuracy
