// Loops as decompositions and passes write them: a scan over slices, and the nodes of a body in another graph.
#pragma once
#include "graph/ops/builder.h"

namespace tessera::ops {

// A loop is written out while its iterations have no more nodes than this together: the compile takes a few milliseconds
// a node, and the kernels of that many are no slower to fetch than those of one body.
inline constexpr int64_t kUnrolledNodes = 512;

// Whether inline_graph() takes the body: no node of it defines sizes, holds a graph or has side effects.
[[nodiscard]] bool can_inline(const Graph& body);
// Appends the nodes of `body` to `into`, `arguments` in the place of its inputs; yields its outputs. Requires
// can_inline(). Errors: those of inference.
[[nodiscard]] Result<std::vector<ValueId>> inline_graph(const Graph& body, std::span<const ValueId> arguments,
                                                        Graph& into);

// body(carried..., slices of scanned along dimension 0..., captured...) -> carried..., slices...
struct Scan {
  std::shared_ptr<Graph> body;
  std::vector<ValueId> carried, scanned, captured;
  std::vector<bool> reverse_in, reverse_out; // by scanned value and by stacked result: from the last slice on
};
// The carried values at the end, then the stacked results: `scan_graph`, or its iterations where their number is known
// and small.
[[nodiscard]] std::vector<ValueId> scan_slices(B& b, const Scan& scan);
// So many iterations of the body one behind the other, on the first dimension of what is scanned, which has that size.
[[nodiscard]] std::vector<ValueId> unrolled(B& b, const Scan& scan, int64_t iterations);

} // namespace tessera::ops
