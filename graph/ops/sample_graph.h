// Samples of records as graphs of one node: what tests over operators run, and what the table of operators is derived
// from.
#pragma once
#include "graph/ops/record.h"
#include "graph/reference/evaluator.h"

namespace tessera::ops {

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

// The graph with as little known as inference admits; or with as much known as stated. It has no outputs.
[[nodiscard]] Result<SampleGraph> sample_graph(const OpDef& op, const Sample& sample, Sizes sizes);
[[nodiscard]] Result<SampleGraph> sample_graph(const OpDef& op, const Sample& sample, Sizes sizes, Known known);

// The element type that a sample is of: of its first operand that is not bool; bool where all are; nothing without
// operands.
[[nodiscard]] std::optional<DType> element_type(const Sample& sample);
// The sample with every operand of its element type converted to another one; nothing where there is no such
// conversion. Whether the operator takes it is for sample_graph() to say.
[[nodiscard]] std::optional<Sample> with_element_type(const Sample& sample, DType dtype);

} // namespace tessera::ops
