// What the host can run, and the rewriting of what it can run another way.
#pragma once
#include "graph/ir/graph.h"

namespace tessera {

// Products and convolutions in f16 and bf16 become f32 ones: operands are cast where they are produced (the cast
// vanishes into the producing kernel), constant weights are widened once, results are cast back. f64 and integer ones
// are left to generated code or the reference.
[[nodiscard]] Status legalize_for_host(Graph& graph);

// Whether a node runs natively: a nest whose dtypes generated code can hold, or a library call; otherwise it runs by
// its reference on the host, and `why_not` says for what reason.
[[nodiscard]] bool host_supports(const Graph& graph, NodeId node, std::string* why_not);

} // namespace tessera
