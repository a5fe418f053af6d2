// Runs a sample of an operator's record: a graph of that one node, with static or symbolic sizes.
#pragma once
#include "graph/ops/sample_graph.h"
#include "graph/reference/evaluator.h"
#include "tests/base/share.h"

namespace tessera::test {

using ops::Known;
using ops::SampleGraph;
using ops::Sizes;

// ops::sample_graph().
[[nodiscard]] inline Result<SampleGraph> build(const OpDef& op, const Sample& sample, Sizes sizes) {
  return ops::sample_graph(op, sample, sizes);
}
[[nodiscard]] inline Result<SampleGraph> build(const OpDef& op, const Sample& sample, Sizes sizes, Known known) {
  return ops::sample_graph(op, sample, sizes, known);
}
// Evaluates the operator on the sample's tensors by its scalar body, indexing or fold, or by its decomposition.
[[nodiscard]] Result<std::vector<Tensor>> evaluate_without_reference(const SampleGraph& g, const Sample& sample);
// Empty when the tensors agree within the sample's tolerance: ||out - ref|| / ||ref||, exactly for integers and bool.
[[nodiscard]] std::string difference(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                                     double tolerance);
// "sample 3: (f32[2, 3], i64[1]) axis=1 opset 13"
[[nodiscard]] std::string describe(const Sample& sample, size_t number);
// Whether `share`, one for each operator, takes the sample. Samples are of a kind by their element type, by their attributes (which there
// are, and the values of those that are words) and by the sizes.
[[nodiscard]] bool takes(Share& share, const Sample& sample, Sizes sizes);

} // namespace tessera::test
