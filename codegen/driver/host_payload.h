// Operators that run by their reference, in files: each as the text of a graph of that one node.
//
//   graph @host(%0: f32[n, 4], %1: i64[1]) -> (...) where n in [0, ?] { %2, %3 = topk(%0, %1) axis=1 : ... }
//
// Its inputs are the node's operands, in order; small constants, from which result types may follow, stand in it. Its
// symbols are found again by name: names are unique within an environment.
#pragma once
#include "graph/ir/graph.h"
#include "runtime/executable.h"

namespace tessera {

// For HostStep::payload. Empty when the node's text cannot be read back (a subgraph that reads values around it).
[[nodiscard]] std::string host_payload(const Graph& graph, const Node& node);
// The function of a host step of a loaded executable. Errors: CorruptFile, also for a text whose types are not those of
// the step's buffers. The function refuses operands that are not what the text declares.
[[nodiscard]] Result<decltype(HostStep::run)> resolve_host_step(const HostStep& step, const Executable& executable);

} // namespace tessera
