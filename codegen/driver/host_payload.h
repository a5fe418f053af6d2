// Serialisation of operators that run by their reference: each is the text of a graph with that one node.
//
//   graph @host(%0: f32[n, 4], %1: i64[1]) -> (...) where n in [0, ?] { %2, %3 = topk(%0, %1) axis=1 : ... }
//
// Its inputs are the node's operands, in order; small constants, on which result types may depend, and bodies are part of
// the text. Its symbols are matched by name: names are unique within an environment. codegen/load reads it.
#pragma once
#include "graph/ir/graph.h"

namespace tessera {

// The text for HostStep::payload. Empty if it cannot be parsed again.
[[nodiscard]] std::string host_payload(const Graph& graph, const Node& node);

} // namespace tessera
