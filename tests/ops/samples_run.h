// Runs a sample of an operator's record: a graph of that one node, with static or symbolic sizes.
#pragma once
#include "graph/ops/op.h"
#include "graph/reference/evaluator.h"

namespace tessera::test {

// Which operands the graph knows the values of. Axes, shapes and counts must be known; data should not be.
enum class Known { Nothing, IntegersAndScalars, Everything };
// How sizes stand in the types of the operands that are not known: as numbers; one symbol for each size above 1; or a
// symbol for the leading dimension of the first operand (batch) alone, wherever another operand leads with that size,
// too.
enum class Sizes { Static, Symbolic, SymbolicBatch };

struct SampleGraph {
  Graph graph;
  NodeId node;
  SymValues symbols; // the sample's sizes

  [[nodiscard]] const Node& get() const { return graph.node(node); }
};

// The graph with as little known as inference admits; or with as much known as asked for.
[[nodiscard]] Result<SampleGraph> build(const OpDef& op, const Sample& sample, Sizes sizes);
[[nodiscard]] Result<SampleGraph> build(const OpDef& op, const Sample& sample, Sizes sizes, Known known);
// What the operator means for the sample's tensors: its scalar body, indexing or fold, or its decomposition evaluated.
[[nodiscard]] Result<std::vector<Tensor>> evaluate_without_reference(const SampleGraph& g, const Sample& sample);
// Empty when the tensors agree within the sample's tolerance: ||out - ref|| / ||ref||, exactly for integers and bool.
[[nodiscard]] std::string difference(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                                     double tolerance);
// "sample 3: (f32[2, 3], i64[1]) axis=1 opset 13"
[[nodiscard]] std::string describe(const Sample& sample, size_t number);

} // namespace tessera::test
