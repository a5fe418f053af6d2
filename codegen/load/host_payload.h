// Serialisation of operators that run by their reference: each is the text of a graph with that one node.
//
//   graph @host(%0: f32[n, 4], %1: i64[1]) -> (...) where n in [0, ?] { %2, %3 = topk(%0, %1) axis=1 : ... }
//
// Its inputs are the node's operands, in order; small constants, on which result types may depend, and bodies are part of
// the text. Its symbols are matched by name: names are unique within an environment.
#pragma once
#include "graph/ir/graph.h"
#include "runtime/executable.h"

namespace tessera {

// The text for HostStep::payload. Empty if it cannot be parsed again.
[[nodiscard]] std::string host_payload(const Graph& graph, const Node& node);
// The function of a host step of a loaded executable. Errors: UnsupportedOp (an operator of a library that is not
// loaded); CorruptFile, also for a text whose types differ from the step's buffers. The function rejects operands that differ from the text.
[[nodiscard]] Result<decltype(HostStep::run)> resolve_host_step(const HostStep& step, const Executable& executable);

} // namespace tessera
