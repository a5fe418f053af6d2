// Scans whose bodies are prepared for being run again and again.
//
// An iteration of a loop takes the host a while before its body's first step starts (Target::iteration_us). So a body
// becomes several iterations, as many as make this a small part of what they take themselves:
//
//   scan_graph(state, x[n])  ->  scan_graph(state, x[n / s, s])  behind it scan_graph(state, the n mod s slices left)
//
// A captured value that depends on no input is computed in the body, from the constants: there it is folded, and
// libraries may pack it.
#pragma once
#include "codegen/target/target.h"
#include "graph/ir/graph.h"

namespace tessera {

// Returns whether the graph changed. Errors: those of inference.
[[nodiscard]] Result<bool> group_iterations(Graph& graph, const Target& device);

} // namespace tessera
